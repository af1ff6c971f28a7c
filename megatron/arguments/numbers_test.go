package arguments

import (
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"monotron/internal/exitcode"
	"monotron/megatron/arguments/table"
)

// Claim: a number of any flag, however absurd, is taken or answered at once by one
// error that names flag and value, and where the number is out of range says from where
// to where it may go.
func TestAbsurdNumbers(t *testing.T) {
	for _, f := range table.All() {
		if !f.Kind.Numeric() || f.Class == table.Refused {
			continue
		}
		for _, number := range []string{"0", "-1", "1000000000", "4611686018427387904"} {
			args := append(baseline(), "--"+f.Name)
			for range max(1, f.Count) {
				args = append(args, number)
			}
			start := processorTime(t)
			_, _, err := ParseWith(everything, args)
			if took := processorTime(t) - start; took > time.Second {
				t.Errorf("--%s %s took %v of processor time: something counts up to it", f.Name, number, took)
			}
			if err != nil {
				checkOneProblem(t, f, number, err)
			}
		}
	}
}

// processorTime is what this process has used: a busy machine does not make it longer.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func checkOneProblem(t *testing.T, f *table.Flag, number string, err error) {
	t.Helper()
	text := err.Error()
	switch {
	case exitcode.CodeOf(err) != exitcode.Usage || strings.Contains(text, "problems:"):
		t.Errorf("--%s %s: more than one problem: %v", f.Name, number, err)
	case !strings.Contains(text, "--"+f.Name):
		t.Errorf("--%s %s: the error does not name the flag: %v", f.Name, number, err)
	case !strings.Contains(text, number) && !strings.Contains(text, asFloat(number)) && !wrongWithAnyNumber(f):
		t.Errorf("--%s %s: the error does not name the number: %v", f.Name, number, err)
	}
	if _, wrong := f.Number(number); wrong != nil && f.Range != nil && !strings.Contains(text, f.Range.String()) {
		t.Errorf("--%s %s: no range: %v", f.Name, number, err)
	}
}

// asFloat is how a number of many digits may be written back.
func asFloat(number string) string {
	x, _ := strconv.ParseFloat(number, 64)
	return strconv.FormatFloat(x, 'g', -1, 64)
}

// wrongWithAnyNumber reports flags that the baseline excludes, or that need another.
func wrongWithAnyNumber(f *table.Flag) bool {
	_, _, err := ParseWith(everything, append(baseline(), withValue(f)...))
	return err != nil
}

// Claim: numbers are read as Python reads them, wherever they stand.
func TestPythonsNumbers(t *testing.T) {
	c, _, err := Parse(append(baseline(), strings.Fields("--train-iters +1_000 --lr 1_0.5e-4 --eval-iters 007 --timing-log-level +1 --clip-grad .5 --iterations-to-skip 1_0 +2")...))
	if err != nil {
		t.Fatal(err)
	}
	if c.TrainIters != 1000 || c.Optimizer.LR != 10.5e-4 || c.EvalIters != 7 || c.Log.TimingLevel != 1 || c.Optimizer.ClipGrad != .5 || c.IterationsToSkip[0] != 10 {
		t.Errorf("iters %d, lr %g, eval %d, timing %d, clip %g, skip %v", c.TrainIters, c.Optimizer.LR, c.EvalIters, c.Log.TimingLevel, c.Optimizer.ClipGrad, c.IterationsToSkip)
	}
}

// Claim: what is wrong is said once; nothing that only follows from it is called
// missing, unequal or too small.
func TestNoFollowUps(t *testing.T) {
	for _, c := range []struct{ without, add, want string }{
		{"--train-iters 100", "--train-iters 1e5", "--train-iters must be an integer from 0 to 2147483647, not 1e5"},
		{"--train-iters 100", "--train-samples 9.5", "--train-samples must be an integer from 0 to 9007199254740992, not 9.5"},
		{"--train-iters 100", "--train-iters", "--train-iters needs a value"},
		{"--train-iters 100", "--train-iter 100", "did you mean --train-iters?"},
		{"--train-iters 100", "--train-tokens 300000000000", "use --train-samples"},
		{"--micro-batch-size 2", "--batch-size 4", "use --micro-batch-size"},
		{"--micro-batch-size 2", "--micro-batch-size two", "--micro-batch-size must be an integer from 1 to 2147483647, not two"},
		{"--lr 1e-3", "--lr 1e-3x", "--lr must be a number from 0 to 1e+30, not 1e-3x"},
		{"--lr 1e-3", "--lr nan --min-lr 1e-2", "--lr must be from 0 to 1e+30, not nan"},
		{"--data-path a", "--mock-dat", "did you mean --mock-data?"},
		{"--data-path a", "--train-weighted-split-paths x", `"x" is not of the form NAME: WEIGHT START:END PREFIX`},
		{"--hidden-size 64", "--hidden-size 64k", "--hidden-size must be an integer from 1 to 2147483647, not 64k"},
		{"--hidden-size 64", "--hidden-size 65 --kv-channels x", "--kv-channels must be an integer from 1 to 2147483647, not x"},
		{"--num-layers 4", "--num-layers 4x --world-size 3 --pipeline-model-parallel-size 3 --global-batch-size 8", "--num-layers must be an integer from 1 to 100000, not 4x"},
		{"--num-layers 4", "--decoder-num-layers 4", "GPT has one stack"},
		{"", "--tensor-model-parallel-size 2x --world-size 16", "--tensor-model-parallel-size must be an integer from 1 to 100000, not 2x"},
		{"", "--world-size 8x --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2", "--world-size must be an integer from 1 to 100000, not 8x"},
		{"", "--save x --save-interval 1h", "--save-interval must be an integer from 1 to 2147483647, not 1h"},
		{"", "--rampup-batch-size 3 3 x", "--rampup-batch-size must be an integer from 0 to 9007199254740992, not x"},
		{"--seq-length 64", "--seq-length 2K", "--seq-length must be an integer from 2 to 2147483647, not 2K"},
	} {
		line := strings.Replace(strings.Join(baseline(), " "), c.without, "", 1)
		_, _, err := ParseWith(everything, strings.Fields(line+" "+c.add))
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "problems:") {
			t.Errorf("%s: %v; want %q alone", c.add, err, c.want)
		}
	}
}

// Claim: flags with one reason are refused in one line, and accepted in one notice.
func TestOneReasonIsSaidOnce(t *testing.T) {
	_, _, err := Parse(append(baseline(), strings.Fields("--fp8-format hybrid --fp8-recipe custom --fp4-format e2m1 --mtp-hsm --mtp-standalone")...))
	if err == nil || !strings.HasPrefix(err.Error(), "3 problems:") || !strings.Contains(err.Error(), "--mtp-standalone, --mtp-hsm: ") {
		t.Errorf("%v", err)
	}
	_, report, err := Parse(append(baseline(), strings.Fields("--wandb-project a --wandb-exp-name b --manual-gc --manual-gc-interval 5")...))
	if err != nil || len(report.Notices) != 2 || !strings.HasPrefix(report.Notices[1], "--wandb-project, --wandb-exp-name have no effect in monotron") {
		t.Errorf("%q, %v", report.Notices, err)
	}
}

// Claim: DeepSpeed's --zero-stage is Megatron's sharding strategy.
func TestZeroStage(t *testing.T) {
	for stage, want := range []string{"no_shard", "optim", "optim_grads", "optim_grads_params"} {
		c, _, err := Parse(append(baseline(), "--zero-stage", string(rune('0'+stage))))
		if err != nil || c.Layout.Sharding != want || c.Layout.DistributedOptimizer != (stage > 0) {
			t.Errorf("stage %d: %q, %v", stage, c.Layout.Sharding, err)
		}
	}
	if _, _, err := Parse(append(baseline(), strings.Fields("--zero-stage 1 --data-parallel-sharding-strategy optim_grads")...)); err == nil {
		t.Error("--zero-stage 1 agrees with optim_grads")
	}
}

// Claim: --no-pad-vocab-size leaves the vocabulary as it is.
func TestNoVocabPadding(t *testing.T) {
	c, _, err := Parse(append(baseline(), "--no-pad-vocab-size"))
	if err != nil || c.Model.PaddedVocabSize != 250 {
		t.Errorf("%d rows, %v; want 250", c.Model.PaddedVocabSize, err)
	}
}
