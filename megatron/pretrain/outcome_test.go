package pretrain

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint/native"
	"monotron/megatron/telemetry"
	"monotron/megatron/training"
)

// outcome reads a --result-json file.
func outcome(t *testing.T, path string) (o training.Outcome) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// Claim (docs/automation.md): the outcome has the run's last numbers, and the hash of the weights
// that a checkpoint of the same step has, on one rank and on eight.
func TestOutcome(t *testing.T) {
	hashes := map[string]bool{}
	for _, layout := range []string{"", "--world-size 8 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --use-distributed-optimizer"} {
		dir := t.TempDir()
		must(t, dir, tiny+someData+"--save DIR/ck --result-json DIR/result.json --log-jsonl DIR/log.jsonl --log-weights-hash 6 "+layout)
		o := outcome(t, filepath.Join(dir, "result.json"))
		if o.ExitCode != exitcode.Done || o.Reason != "done" || o.Iteration != 6 || o.Target != 6 || o.Samples != 24 || o.Tokens != 24*16 || o.StepTime <= 0 || o.Seconds < o.StepTime {
			t.Errorf("%q: %+v", layout, o)
		}
		if o.Loss == nil || o.ValidationLoss == nil || o.TestLoss == nil || o.ValidationBits != nil { // ids of the Null tokenizer have no bytes
			t.Errorf("%q: %+v", layout, o)
		}
		folder, err := native.Open(filepath.Join(dir, "ck"), -1)
		if err != nil {
			t.Fatal(err)
		}
		sum, err := folder.Hash(func(name string) bool { return !strings.HasPrefix(name, "optimizer.") })
		folder.Close()
		if err != nil || o.WeightsHash != sum.Hash() {
			t.Errorf("%q: weights hash %s, of the checkpoint %s (%v)", layout, o.WeightsHash, sum.Hash(), err)
		}
		log, err := os.ReadFile(filepath.Join(dir, "log.jsonl"))
		if err != nil || strings.Count(string(log), `"weights_hash":"`+o.WeightsHash+`"`) != 1 || strings.Count(string(log), "weights_hash") != 1 {
			t.Errorf("%q: the log (%v) has not the hash %s once:\n%s", layout, err, o.WeightsHash, log)
		}
		hashes[o.WeightsHash] = true
	}
	if len(hashes) != 2 { // layouts add in another order
		t.Errorf("one hash of two layouts: %v", hashes)
	}
}

// Claim (docs/automation.md): a run that fails has an outcome too: all problems of its command line
// with codes, or the error.
func TestOutcomeOfFailures(t *testing.T) {
	dir := t.TempDir()
	r := call(t, dir, tiny+someData+"--result-json DIR/bad.json --nope 3 --num-layers x --lr -1")
	o := outcome(t, filepath.Join(dir, "bad.json"))
	if r.code() != exitcode.Usage || o.ExitCode != exitcode.Usage || o.Reason != "usage" || len(o.Problems) != 3 {
		t.Fatalf("%v: %+v", r.err, o)
	}
	for i, want := range []string{"unknown flag --nope", "--num-layers", "--lr"} {
		if p := o.Problems[i]; p.Code != exitcode.Usage || !strings.Contains(p.Message, want) {
			t.Errorf("problem %d is %+v, want %s", i, p, want)
		}
	}
	r = call(t, dir, tiny+someData+"--result-json DIR/nan.json --inject nan:step=3:layer=1")
	o = outcome(t, filepath.Join(dir, "nan.json"))
	if r.code() != exitcode.Internal || o.ExitCode != r.code() || o.Iteration != 2 || len(o.Problems) != 1 || o.Message != r.err.Error() || o.WeightsHash != "" {
		t.Errorf("%v: %+v", r.err, o)
	}
	if r = call(t, dir, tiny+someData+"--result-json DIR/nan.json/x.json"); r.code() != exitcode.IO || strings.Contains(r.out, "iteration") || !strings.Contains(r.err.Error(), "--result-json") {
		t.Errorf("a path that cannot be written: %v", r.err)
	}
}

// Claim (docs/automation.md): bits per byte are the loss in bits times the tokens by the bytes of
// text they stand for: with GPT-2's 256 first ids every token is one byte.
func TestBitsPerByte(t *testing.T) {
	dir := t.TempDir()
	corpus(t, dir, "bytes", 90, 110, 120, 80, 100, 70)
	must(t, dir, tiny+"--tokenizer-type GPT2BPETokenizer --data-path DIR/bytes --split 1,1,0 --train-iters 2 --result-json DIR/result.json --world-size 2 --eval-iters 1")
	o := outcome(t, filepath.Join(dir, "result.json"))
	if o.ValidationLoss == nil || o.ValidationBits == nil {
		t.Fatalf("%+v", o)
	}
	if want := float64(*o.ValidationLoss) / math.Ln2; math.Abs(float64(*o.ValidationBits)-want) > 1e-12*want {
		t.Errorf("%v bits a byte, %v bits a token", *o.ValidationBits, want)
	}
}

// Claim (docs/automation.md): equal runs have equal fingerprints, also when resumed; the first
// that differs is where the runs part.
func TestFingerprints(t *testing.T) {
	dir := t.TempDir()
	layout := "--world-size 4 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --global-batch-size 4 "
	must(t, dir, tiny+someData+layout+"--log-fingerprints DIR/a")
	must(t, dir, tiny+someData+layout+"--log-fingerprints DIR/b --exit-interval 3 --save DIR/ck --save-interval 3")
	must(t, dir, tiny+someData+layout+"--log-fingerprints DIR/b --save DIR/ck --load DIR/ck")
	for rank := range 4 {
		a, b := prints(t, dir, "a", rank), prints(t, dir, "b", rank)
		if len(a) != 6 || len(b) != 6 {
			t.Fatalf("rank %d: %d and %d iterations", rank, len(a), len(b))
		}
		for i := range a {
			if a[i] != b[i] {
				t.Errorf("rank %d, line %d: %.200s, %.200s", rank, i, a[i], b[i])
			}
			for _, phase := range []string{training.PrintData, training.PrintForward, training.PrintGradient, training.PrintWeight} {
				if !strings.Contains(a[i], `"phase":"`+phase+`"`) {
					t.Errorf("rank %d, line %d: no %s", rank, i, phase)
				}
			}
		}
	}
	if r := call(t, dir, tiny+someData+layout+"--log-fingerprints DIR/c --inject nan:step=3:layer=1"); r.code() != exitcode.Internal {
		t.Fatal(r.err)
	}
	if a, c := prints(t, dir, "a", 2), prints(t, dir, "c", 2); len(c) != 3 || a[1] != c[1] || a[2] == c[2] {
		t.Errorf("%d lines of a run that failed in step 3", len(c))
	}
}

// prints are the lines of a rank's fingerprints without headers.
func prints(t *testing.T, dir, name string, rank int) (lines []string) {
	t.Helper()
	text, err := os.ReadFile(training.PrintsOf(filepath.Join(dir, name), rank))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		if !strings.Contains(line, `"header"`) {
			lines = append(lines, line)
		}
	}
	return lines
}

// Claim (docs/report.md): a run says next to its log how it ended, whichever way that was.
func TestHowItEndedIsNextToTheLog(t *testing.T) {
	for name, c := range map[string]struct {
		flags     string
		code      exitcode.Code
		iteration int64
		text      string
	}{
		"done":        {"", exitcode.Done, 6, ""},
		"exited":      {"--exit-interval 3", exitcode.Done, 3, ""},
		"a full disk": {"--save DIR/ck --inject diskfull:step=6", exitcode.IO, 6, "no space left"},
	} {
		dir := t.TempDir()
		r := call(t, dir, tiny+someData+"--log-jsonl DIR/log.jsonl "+c.flags)
		a, err := telemetry.ReadAbout(filepath.Join(dir, "log.jsonl"))
		if err != nil || a == nil || a.Ended == nil {
			t.Fatalf("%s: %+v, %v", name, a, err)
		}
		if e := a.Ended; r.code() != c.code || e.Code != c.code || e.Iteration != c.iteration || e.Time.IsZero() || (c.text == "") != (e.Text == "") || !strings.Contains(e.Text, c.text) {
			t.Errorf("%s: ended with %d, next to the log is %+v", name, r.code(), e)
		}
	}
}

// Claim (docs/report.md): a run that ends during its setup says so next to its log, as one that ends later does.
func TestFailedSetupIsInTheLog(t *testing.T) {
	dir := t.TempDir()
	for i, c := range []struct {
		line string
		code exitcode.Code
		want string
	}{
		{tiny + "--tokenizer-type NullTokenizer --vocab-size 50 --data-path DIR/nosuch", exitcode.NoInput, "nosuch"},
		{tiny + someData + "--load DIR/nosuch", exitcode.NoInput, "the folder does not exist"},
	} {
		log := filepath.Join(dir, fmt.Sprint(i), "steps.jsonl")
		r := call(t, dir, c.line+" --log-jsonl "+log)
		about, err := telemetry.ReadAbout(log)
		if r.code() != c.code || err != nil || about == nil || about.Ended == nil || about.Ended.Code != c.code || !strings.Contains(about.Ended.Text, c.want) {
			t.Errorf("%s: code %d, %v: %+v, %v", c.line, r.code(), r.err, about, err)
		}
	}
}
