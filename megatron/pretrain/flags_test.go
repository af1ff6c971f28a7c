package pretrain

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"monotron/internal/exitcode"
	"monotron/megatron/arguments/table"
)

// Claim: flags of the class "works" act: each changes what the run prints, as
// its help says.
func TestFlagsAct(t *testing.T) {
	dir := t.TempDir()
	plain := must(t, dir, tiny+someData)
	const last = "iteration        6/"
	for _, c := range []struct {
		add   string
		has   string // regular expression over stdout
		lacks string
	}{
		{"--log-interval 4", "iteration        4/", "iteration        3/"},
		{"--log-params-norm", `params norm: \d+\.\d{3} \|`, ""},
		{"--log-num-zeros-in-grad", `num zeros: \d+\.0 \|`, ""},
		{"--log-throughput", `throughput per GPU \(TFLOP/s/GPU\): \d`, ""},
		{"--log-memory-interval 3", `after 6 iterations\) memory`, ""},
		{"--log-extras", `iter 6: loss \d`, ""},
		{"--timing-log-level 1", `\(min, max\) time across ranks \(ms\):\n    forward-backward \.+: \(`, "forward-compute"},
		{"--timing-log-level 1 --timing-log-option max", `max time across ranks \(ms\):\n    forward-backward \.+: \d`, "forward-compute"},
		{"--timing-log-level 2 --timing-log-option all", `times across ranks \(ms\):\n  forward-backward:\n     rank  0: \d`, ""},
		{"--iterations-to-skip 2 3", `iteration        4/.*skipped samples:            8 \|`, "iteration        [23]/"},
		{"--exit-interval 3", "iteration        3/", "iteration        4/"},
		{"--skip-train", "validation loss at iteration 0 on validation set", "iteration        1/"},
		{"--eval-iters 0", last, "validation"},
		{"--full-validation", "validation loss at iteration 4 ", ""},
		{"--full-validation --eval-iters 0", "validation loss at iteration 4 ", "test set"},
		{"--fp16", "number of skipped iterations:   1", ""},
		{"--fp16 --loss-scale 128", "loss scale: 128.0", ""},
		{"--fp16 --initial-loss-scale 1024 --loss-scale-window 2", "loss scale: 4096.0", ""},
		{"--train-samples 18 --train-iters 0", "iteration        4/       4", "iteration        5/"},
		{"--rampup-batch-size 2 2 8", "global batch size:     2", ""},
		{"--step-batch-size-schedule 0:2,128:4", "global batch size:     2", ""},
		{"--decrease-batch-size-if-needed --global-batch-size 5", `skipped samples:            1 \|.*global batch size:     4 \|`, ""},
		{"--lr-decay-style constant", last + `.*learning rate: 1\.000000E-02`, ""},
		{"--lr-decay-style WSD --lr-wsd-decay-iters 2 --lr-wsd-decay-style linear", `iteration        5/.*learning rate: 5\.000000E-03`, ""},
		{"--lr-warmup-iters 2", `iteration        1/.*learning rate: 5\.000000E-03`, ""},
		{"--lr 1e30 --no-check-for-nan-in-loss-and-grad", last + ".*number of skipped iterations:   1", ""},
	} {
		r := must(t, dir, tiny+someData+c.add)
		if !regexp.MustCompile(c.has).MatchString(r.out) || c.lacks != "" && regexp.MustCompile(c.lacks).MatchString(r.out) {
			t.Errorf("%s: want %q, not %q in\n%s", c.add, c.has, c.lacks, r.out)
		}
	}
	for _, add := range []string{"--decoupled-lr 0.1", "--weight-decay 1", "--clip-grad 0.1", "--optimizer sgd", "--adam-beta1 0.5", "--adam-eps 1", "--seed 5",
		"--calculate-per-token-loss --eod-mask-loss --micro-batch-size 1", "--hidden-dropout 0", "--attention-dropout 0", "--bf16", "--init-method-std 0.1",
		"--dataloader-type cyclic", "--min-lr 0.009", "--weight-decay-incr-style linear --start-weight-decay 0 --end-weight-decay 3"} {
		r := must(t, dir, tiny+someData+add)
		if strings.Join(numbers(r.out), "") == strings.Join(numbers(plain.out), "") {
			t.Errorf("%s changes nothing", add)
		}
	}
	for _, add := range []string{"--no-mmap-bin-files", "--num-workers 0", "--recompute-activations", "--cpu-threads 2", "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
		"--use-distributed-optimizer", "--eval-micro-batch-size 1", "--decoupled-lr 0.01 --decoupled-min-lr 0"} {
		r := must(t, dir, tiny+someData+add)
		if a, b := strings.Join(numbers(r.out), "\n"), strings.Join(numbers(plain.out), "\n"); a != b {
			t.Errorf("%s changes the numbers to\n%s\nfrom\n%s", add, a, b)
		}
	}
}

// Claim: which checkpoints stay is what the flags say.
func TestKeptCheckpoints(t *testing.T) {
	for add, want := range map[string]string{
		"--save-interval 2":                                        "2 4 6",
		"--save-interval 4":                                        "4 6",
		"--save-interval 1 --keep-last 2":                          "5 6",
		"--save-interval 1 --save-retain-interval 3":               "3 5 6",
		"--save-interval 1 --keep-last 1 --save-retain-interval 2": "2 4 6",
		"--save-interval 2 --async-save":                           "2 4 6",
		"--save-interval 9 --exit-interval 3":                      "3",
	} {
		dir := t.TempDir()
		must(t, dir, tiny+someData+"--eval-iters 0 --save DIR/c "+add)
		entries, err := os.ReadDir(filepath.Join(dir, "c"))
		if err != nil {
			t.Fatal(err)
		}
		var kept []string
		for _, e := range entries {
			if n, ok := strings.CutPrefix(e.Name(), "iter_"); ok {
				kept = append(kept, strings.TrimLeft(n, "0"))
			} else if e.Name() != "latest_checkpointed_iteration.txt" {
				t.Errorf("%s: %s is left behind", add, e.Name())
			}
		}
		if got := strings.Join(kept, " "); got != want {
			t.Errorf("%s: %s, want %s", add, got, want)
		}
	}
}

// Claim: --use-checkpoint-args needs the model described once, takes nothing that
// concerns the old process, and survives a damaged newest checkpoint.
func TestUseCheckpointArgs(t *testing.T) {
	dir := t.TempDir()
	want := numbers(must(t, dir, tiny+someData+"--squared-relu --save DIR/c --save-interval 2 --exit-interval 4").out)
	remove(t, filepath.Join(dir, "c", "iter_0000004"), "manifest.json")
	r := must(t, dir, "--use-checkpoint-args --load DIR/c --log-interval 1 --train-iters 6 --exit-interval 4")
	if got := numbers(r.out); strings.Join(got, "\n") != strings.Join(want[2:], "\n") || strings.Contains(r.notes, "saved") {
		t.Errorf("%s\nwant\n%s\n%s", strings.Join(got, "\n"), strings.Join(want[2:], "\n"), r.notes)
	}
}

// Claim (docs/logging.md): stdout has Megatron's lines alone, in its order.
func TestStdoutIsMegatrons(t *testing.T) {
	r := must(t, t.TempDir(), tiny+someData+"--save DIR/c --save-interval 2 --manual-gc --sample-prompt 1")
	form := regexp.MustCompile(`^( > number of parameters on |\[Rank 0\] \(after \d+ iterations\) memory \(MB\) \| | \[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}\] iteration +\d+/ +6 \| consumed samples: +\d+ \| | validation loss at iteration \d+ (on (validation|test) set )?\| lm loss value: |-+$)`)
	for _, line := range strings.Split(strings.TrimSuffix(r.out, "\n"), "\n") {
		if !form.MatchString(line) {
			t.Errorf("%q", line)
		}
	}
	var order []string
	for _, m := range regexp.MustCompile(`iteration +(\d+)/|validation loss at (iteration \d+[a-z ]*)\|`).FindAllStringSubmatch(r.out, -1) {
		order = append(order, m[1]+strings.TrimSpace(m[2]))
	}
	const want = "1,2,3,4,iteration 4,5,6,iteration 6 on validation set,iteration 6 on test set"
	if got := strings.Join(order, ","); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Claim: a full standard output is an I/O error, not silence.
func TestFullStdout(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("no /dev/full here")
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = full.Close() }() // only written
	c := child(t, t.TempDir(), tiny+someData)
	c.Stdout = full
	if err := c.Run(); err == nil || c.ProcessState.ExitCode() != int(exitcode.IO) {
		t.Errorf("%v: %s", err, c.notes.String())
	}
}

// Claim (docs/developing.md): each optimizer that a flag names trains with an update of its own kind; one without a branch fails here.
func TestEveryOptimizerTrains(t *testing.T) {
	with := map[string]string{"schedule_free_adamw": "--lr-decay-style constant "}
	seen := map[string]string{}
	for _, kind := range table.Find("optimizer").Choices {
		dir := t.TempDir()
		r := must(t, dir, tiny+someData+with[kind]+"--train-iters 3 --eval-iters 0 --optimizer "+kind)
		losses := strings.Join(numbers(r.out), "\n")
		if other, same := seen[losses]; same && kind != "adamw_8bit" { // whose codes this model's small tensors do not have
			t.Errorf("%s trains as %s", kind, other)
		}
		seen[losses] = kind
	}
}

// Claim (docs/report.md, docs/logging.md): --profile without a file writes next to the log, whose folder is made for
// both. The trace has the ops of a forward and a backward pass, within these phases, with their sizes.
func TestTraceIsNextToTheLog(t *testing.T) {
	dir := t.TempDir()
	must(t, dir, tiny+someData+"--log-jsonl DIR/run/steps.jsonl --profile --profile-step-start 1 --profile-step-end 2 --train-iters 3")
	data, err := os.ReadFile(filepath.Join(dir, "run", "trace.json"))
	if err != nil {
		t.Fatal(err)
	}
	type box struct {
		Name, Cat string
		Ts, Dur   float64
		Args      struct{ Shape string }
	}
	var trace struct{ TraceEvents []box }
	if err := json.Unmarshal(data, &trace); err != nil {
		t.Fatal(err)
	}
	phases := map[string]box{}
	for _, b := range trace.TraceEvents {
		if b.Cat == "phase" {
			phases[b.Name] = b
		}
	}
	within := map[string]int{}
	for _, b := range trace.TraceEvents {
		for _, phase := range []string{"forward-compute", "backward-compute", "optimizer"} {
			if p := phases[phase]; b.Cat == "op" && b.Args.Shape != "" && b.Ts >= p.Ts && b.Ts+b.Dur <= p.Ts+p.Dur {
				within[phase+" "+b.Name]++
			}
		}
	}
	for _, want := range []string{"forward-compute matmul", "backward-compute matmul", "backward-compute attention_backward", "optimizer adamw"} {
		if within[want] == 0 {
			t.Errorf("no %s in the trace: %v", want, within)
		}
	}
}
