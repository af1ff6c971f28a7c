package pretrain

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"monotron/internal/exitcode"
)

// Claim (docs/checkpoints.md): one run saves into a folder at a time; a second
// one is refused and takes nothing from the first, whose unfinished saves it
// would else clear away.
func TestOneRunSavesIntoAFolder(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("folders are locked on Unix alone")
	}
	dir := t.TempDir()
	line := tiny + someData + "--save DIR/ck --save-interval 1 --load DIR/ck "
	var second *result
	first := callUntil(t, context.Background(), dir, line, func(text string) {
		if second == nil && strings.Contains(text, "iteration        3/") {
			r := call(t, dir, line)
			second = &r
		}
	})
	if first.err != nil {
		t.Fatal(first.err)
	}
	if second == nil || second.code() != exitcode.IO || !strings.Contains(second.err.Error(), "another run is saving to this folder") {
		t.Fatalf("the second run: %+v", second)
	}
	if again := must(t, dir, line); !strings.Contains(again.notes, "nothing to train") {
		t.Errorf("after both: %s", again.notes)
	}
}

// Claim: a run that is refused before it starts leaves no folder of --save, and no trace.
func TestRefusedRunsLeaveNothing(t *testing.T) {
	for flags, says := range map[string]string{
		"--memory-checkpoint-interval 2":                      "--memory-checkpoint-interval needs monotron launch",
		"--memory-checkpoint-interval 2 --replication-jump 2": "it must be from 1 to 1 (usually",
	} {
		dir := t.TempDir()
		r := call(t, dir, tiny+someData+"--world-size 2 --save DIR/left --save-on-load DIR/first --profile DIR/trace.json "+flags)
		if r.code() != exitcode.Usage || !strings.Contains(r.err.Error(), says) {
			t.Errorf("%s: code %d, %v", flags, r.code(), r.err)
		}
		for _, name := range []string{"left", "first", "trace.json"} {
			if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
				t.Errorf("%s: %s is left", flags, name)
			}
		}
	}
}

// Claim (docs/checkpoints.md): of two runs that are started at the same moment one is
// refused, also where the other has ended before its patience has. One that continues from
// that folder is not.
func TestTwoRunsAtTheSameMoment(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("folders are locked on Unix alone")
	}
	for continued, refused := range map[string]bool{"": true, "--load DIR/ck ": false} {
		dir := t.TempDir()
		line := tiny + someData + "--save DIR/ck --save-interval 3 " + continued
		var second result
		done := make(chan bool)
		began := false
		first := callUntil(t, context.Background(), dir, line, func(text string) {
			if !began && strings.Contains(text, "iteration        6/") {
				began = true
				go func() { second = call(t, dir, line); close(done) }()
				for seen := 0; seen < 5; seen++ { // until it waits for the folder: it may open it before for a moment
					if descriptors(filepath.Join(dir, "ck")) < 2 {
						seen = -1
					}
					time.Sleep(10 * time.Millisecond)
				}
			}
		})
		if first.err != nil || !began {
			t.Fatal(first.err)
		}
		<-done
		if refused != (second.code() == exitcode.IO) || refused && !strings.Contains(second.err.Error(), "started at the same time") {
			t.Errorf("with %q the second run: %v", continued, second.err)
		}
	}
}

// descriptors is how many of this process's open files are the folder.
func descriptors(folder string) (n int) {
	all, _ := filepath.Glob("/proc/self/fd/*")
	for _, fd := range all {
		if path, err := os.Readlink(fd); err == nil && path == folder {
			n++
		}
	}
	return n
}

// Claim (docs/failures.md): a fault for a rank that is not there is a wrong flag.
func TestFaultOfNoRank(t *testing.T) {
	if r := call(t, t.TempDir(), tiny+someData+"--inject kill:rank=99"); r.code() != exitcode.Usage || !strings.Contains(r.err.Error(), "the ranks of this run are 0 to 0") {
		t.Errorf("%v", r.err)
	}
}

// Claim: a run says when it is about to replace checkpoints that it does not continue from, and says nothing
// where it does.
func TestForgottenLoadIsNoted(t *testing.T) {
	dir := t.TempDir()
	save := tiny + someData + "--save DIR/ck --save-interval 3 "
	const note = "ck has checkpoints up to iteration 6, from which this run does not continue"
	if r := must(t, dir, save); strings.Contains(r.notes, "from which this run does not continue") {
		t.Error(r.notes)
	}
	if r := must(t, dir, save+"--load DIR/ck"); strings.Contains(r.notes, "from which this run does not continue") {
		t.Error(r.notes)
	}
	if r := must(t, dir, save); !strings.Contains(r.notes, note) {
		t.Errorf("want %q in:\n%s", note, r.notes)
	}
}

// Claim: --log-extras reports the model FLOPs utilisation against a peak that the
// run measures itself; --profile and --metrics-addr say where their output is.
func TestReportsSayWhereTheyAre(t *testing.T) {
	dir := t.TempDir()
	r := must(t, dir, tiny+someData+"--log-extras --log-jsonl DIR/steps.jsonl --profile DIR/trace.json --metrics-addr 127.0.0.1:0 --world-size 2")
	if !regexp.MustCompile(`(?m)^iter 6: .* tok/s \d+, .*mfu \d+\.\d\d%$`).MatchString(r.out) {
		t.Errorf("no MFU in:\n%s", r.out)
	}
	text, err := os.ReadFile(dir + "/steps.jsonl")
	if err != nil || !strings.Contains(string(text), `"mfu":0.`) {
		t.Errorf("no MFU in %s, %v", text, err)
	}
	for _, want := range []string{"the trace is in " + dir + "/trace.json", "metrics at http://127.0.0.1:", "peak for MFU: "} {
		if !strings.Contains(r.notes, want) {
			t.Errorf("no %q in:\n%s", want, r.notes)
		}
	}
}

// Claim: the error for whoever names what --output-prefix was, or forgets a weight's prefix,
// explains what a data path is.
func TestMissingDataIsExplained(t *testing.T) {
	dir := t.TempDir()
	corpus(t, dir, "my_text_document", 300)
	data := tiny + "--tokenizer-type NullTokenizer --vocab-size 50 --split 1,0,0 --data-path "
	for add, want := range map[string]string{
		"DIR/my":                             "the folder has " + dir + "/my_text_document",
		"DIR/my_text_document.idx":           "give the prefix of the .bin and .idx files, " + dir + "/my_text_document",
		"0.3~DIR/my_text_document":           "without quotes",
		"DIR/none":                           "a data path is the common prefix of two files, PATH.bin and PATH.idx",
		"0.3 DIR/my_text_document 0.7":       "give weights and prefixes in pairs",
		"1 DIR/my_text_document 2 DIR/other": "a data path is the common prefix",
	} {
		if r := call(t, dir, data+add); r.code() != exitcode.NoInput || !strings.Contains(r.err.Error(), want) {
			t.Errorf("%s: code %d, %v; want %q", add, r.code(), r.err, want)
		}
	}
}
