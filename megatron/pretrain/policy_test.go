package pretrain

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"monotron/internal/drawn"
	"monotron/internal/exitcode"
	"monotron/internal/golden"
	"monotron/megatron/telemetry"
)

// prompts makes DIR/base of golden/dpo's model, DIR/prompts.jsonl and the command line that learns from
// rewards: 4 answers to each of 4 prompts a step, of 12 tokens at most.
func prompts(t *testing.T) (dir, line string) {
	t.Helper()
	c := openPreferred(t)
	dir = t.TempDir()
	c.folders(t, dir)
	var rows strings.Builder
	for i := range 10 {
		fmt.Fprintf(&rows, "{\"prompt\": \"Count %d and%s\"}\n", i, strings.Repeat(" on", i%3))
	}
	if err := os.WriteFile(filepath.Join(dir, "prompts.jsonl"), []byte(rows.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	line = "--finetune-data DIR/prompts.jsonl --tuning grpo --reward-pattern a --grpo-group-size 4 --max-completion-length 12 " +
		strings.NewReplacer("--tuning sft ", "", "--global-batch-size 4", "--global-batch-size 16", "--no-data-shuffle ", "").Replace(tuneLine)
	return dir, line
}

func is(n *telemetry.Number, want float64) bool { return n != nil && float64(*n) == want }

// Claim: at the first step after sampling the importance ratio of every token is exactly 1, whatever the
// precision, the micro-batches, the data-parallel and pipeline ranks, sharding, recomputation, adapters, the
// temperature or the type of the base's weights; and these decide neither answers nor rewards.
func TestPolicyRatioIsExactlyOne(t *testing.T) {
	dir, line := prompts(t)
	line += "--train-iters 3 "
	must(t, dir, line+"--micro-batch-size 16 --log-jsonl DIR/log")
	want := stepsOf(t, filepath.Join(dir, "log"))
	type layout struct {
		flags string
		other bool // answers are others
	}
	for i, c := range drawn.Part(t, []layout{
		{"--micro-batch-size 1", false}, {"--micro-batch-size 2 --world-size 2", false}, {"--micro-batch-size 2 --world-size 4 --use-distributed-optimizer", false},
		{"--micro-batch-size 4 --world-size 2 --pipeline-model-parallel-size 2", false}, {"--micro-batch-size 2 --world-size 2 --zero-stage 3", false},
		{"--micro-batch-size 2 --world-size 4 --pipeline-model-parallel-size 2", false},
		{"--micro-batch-size 4 --recompute-granularity full --recompute-method uniform --recompute-num-layers 1", false},
		{"--micro-batch-size 4 --bf16", true}, {"--micro-batch-size 4 --rl-default-temperature 0.7", true}, {"--micro-batch-size 4 --rl-default-top-k 20 --rl-default-top-p 0.9", true},
		{"--micro-batch-size 4 --lora-rank 2 --grpo-kl-beta 0.1", true}, {"--micro-batch-size 4 --lora-rank 2 --use-dora", true}, {"--micro-batch-size 4 --lora-rank 2 --quantize-base nf4", true},
		{"--micro-batch-size 4 --world-size 2 --tensor-model-parallel-size 2", false}, {"--micro-batch-size 2 --world-size 4 --tensor-model-parallel-size 2", false},
		{"--micro-batch-size 2 --world-size 4 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2", false}, {"--micro-batch-size 2 --world-size 4 --tensor-model-parallel-size 2 --zero-stage 2 --finetune-eval-data DIR/prompts.jsonl --eval-interval 2", false},
		{"--micro-batch-size 4 --world-size 2 --tensor-model-parallel-size 2 --bf16 --lora-rank 2 --grpo-kl-beta 0.1", true},
		{"--micro-batch-size 4 --world-size 2 --tensor-model-parallel-size 2 --lora-rank 2 --use-dora --rl-default-temperature 0.7", true},
		{"--micro-batch-size 4 --grpo-loss dr_grpo --grpo-importance sequence", true},
	}, 7) {
		log := fmt.Sprint("log", i)
		must(t, dir, line+c.flags+" --log-jsonl DIR/"+log)
		got := stepsOf(t, filepath.Join(dir, log))
		if len(got) != 3 {
			t.Fatalf("%s: %d steps", c.flags, len(got))
		}
		for k, g := range got {
			if g.Rewarded == nil || !is(g.LogPMostApart, 0) || !is(g.RatioMin, 1) || !is(g.RatioMax, 1) || !is(g.RatioMean, 1) || !is(g.RegionMean, 0) {
				t.Errorf("%s: step %d: %+v", c.flags, k+1, g.Rewarded)
				continue
			}
			if w := want[k]; !c.other && (*g.Reward != *w.Reward || *g.MeanLength != *w.MeanLength || !near(float64(*g.GradNorm), float64(*w.GradNorm), 2e-5)) {
				t.Errorf("%s: step %d: reward %v, length %v, norm %v; want %v, %v, %v", c.flags, k+1, *g.Reward, *g.MeanLength, *g.GradNorm, *w.Reward, *w.MeanLength, *w.GradNorm)
			}
		}
	}
}

func near(a, b, most float64) bool { return math.Abs(a-b) <= most*(1+math.Abs(b)) }

// Claim: steps that learn from the same answers have ratios that differ from 1, and the loss of TRL's
// formula: below that of the first; the distance from the model without its adapter begins at 0.
func TestPolicyLearnsFromAnswersAgain(t *testing.T) {
	dir, line := prompts(t)
	must(t, dir, line+"--micro-batch-size 4 --train-iters 4 --grpo-iterations 2 --lora-rank 4 --grpo-kl-beta 0.1 --lr 1e-2 --min-lr 1e-2 --log-jsonl DIR/log")
	steps := stepsOf(t, filepath.Join(dir, "log"))
	if len(steps) != 4 {
		t.Fatalf("%d steps", len(steps))
	}
	for i, s := range steps {
		if first := i%2 == 0; is(s.LogPMostApart, 0) != first {
			t.Errorf("step %d: log-probabilities differ by %v", i+1, *s.LogPMostApart)
		}
		if s.KL == nil || is(s.KL, 0) != (i == 0) || float64(*s.KL) < 0 {
			t.Errorf("step %d: kl %v", i+1, s.KL)
		}
	}
	for _, i := range []int{0, 2} {
		if a, b := steps[i], steps[i+1]; *a.Reward != *b.Reward || *a.MeanLength != *b.MeanLength || *a.RewardStd != *b.RewardStd {
			t.Errorf("steps %d and %d have other answers", i+1, i+2)
		}
		if a, b := float64(*steps[i].LMLoss), float64(*steps[i+1].LMLoss); !(b < a) {
			t.Errorf("step %d: loss %g after %g", i+2, b, a)
		}
	}
}

// Claim: a run that is stopped resumes bit for bit, also between steps that learn from the same answers,
// with the same answers and rewards; and in another layout to rounding.
func TestPolicyResumes(t *testing.T) {
	for _, flags := range drawn.Part(t, []string{"--grpo-iterations 3", "--grpo-iterations 1", "--grpo-iterations 3 --lora-rank 2 --grpo-kl-beta 0.05"}, 1) {
		dir, line := prompts(t)
		line += "--micro-batch-size 2 --world-size 2 --use-distributed-optimizer --save-interval 2 " + flags + " "
		full := must(t, dir, line+"--save DIR/whole")
		got := inTwoParts(t, dir, line)
		if a, b := strings.Join(got, "\n"), strings.Join(numbers(full.out), "\n"); a != b || len(got) != 8 {
			t.Errorf("%s: in parts\n%s\nat once\n%s", flags, a, b)
		}
		if a, b := weights(t, filepath.Join(dir, "part")), weights(t, filepath.Join(dir, "whole")); a != b {
			t.Errorf("%s: weights %s in parts, %s at once", flags, a, b)
		}
		next := " --train-iters 10 --load DIR/whole "
		a := lossesOf(t, must(t, dir, line+next+"--save DIR/same").out)
		b := lossesOf(t, must(t, dir, line+next+"--save DIR/other --world-size 1 --micro-batch-size 16").out)
		if len(a) != 2 || len(b) != 2 || !near(a[0], b[0], 1e-5) || !near(a[1], b[1], 1e-5) {
			t.Errorf("%s: losses %v, in another layout %v", flags, a, b)
		}
	}
}

// Claim: rewards are learned: of a model that says one letter in some answers, more answers have it after
// 60 steps.
func TestPolicyLearns(t *testing.T) {
	dir, line := prompts(t)
	must(t, dir, line+"--micro-batch-size 16 --reward-pattern o --train-iters 60 --lr 1e-2 --min-lr 1e-2 --log-jsonl DIR/log")
	steps := stepsOf(t, filepath.Join(dir, "log"))
	mean := func(list []telemetry.Entry) (sum float64) {
		for _, s := range list {
			sum += float64(*s.Reward) / float64(len(list))
		}
		return sum
	}
	if before, after := mean(steps[:5]), mean(steps[len(steps)-5:]); !(after > before+0.2) {
		t.Errorf("the mean reward is %g in the first steps and %g in the last", before, after)
	}
}

// Claim: a command judges with the row's fields, and its failure is one error that ends the run before
// anything is learned; rows that a reward cannot judge are named.
func TestPolicyRewardsByCommand(t *testing.T) {
	dir, line := prompts(t)
	line += "--micro-batch-size 4 --train-iters 1 "
	line = strings.Replace(line, "--reward-pattern a ", "", 1)
	judge := filepath.Join(dir, "judge")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(judge, "#!/bin/sh\nwhile read -r line; do case \"$line\" in *'and on'*) echo 2;; *) echo '{\"reward\": 1}';; esac; done\n")
	must(t, dir, line+"--reward-command "+judge+" --log-jsonl DIR/log")
	if s := stepsOf(t, filepath.Join(dir, "log"))[0]; s.Command == nil || !(*s.Command > 1 && *s.Command < 2) || !is(s.SameRewards, 1) || !is(s.GradNorm, 0) {
		t.Errorf("rewards %v, of them equal %v, norm %v", s.Command, *s.SameRewards, *s.GradNorm)
	}
	write(judge, "#!/bin/sh\necho 1\n")
	r := call(t, dir, line+"--reward-command "+judge+" --save DIR/save")
	if r.err == nil || !strings.Contains(r.err.Error(), "the command wrote 1 lines for 16 answers") || r.code() != exitcode.BadData {
		t.Errorf("code %d: %v", r.code(), r.err)
	}
	r = call(t, dir, line+"--reward exact")
	if r.err == nil || !strings.Contains(r.err.Error(), `prompts.jsonl:1: field "answer": the field is missing`) {
		t.Errorf("%v", r.err)
	}
}

// Claim: a run that is asked to stop while a command rewards ends the command, saves the last step and continues from
// it as if uninterrupted.
func TestPolicyStopsDuringRewards(t *testing.T) {
	dir, line := prompts(t)
	line = strings.Replace(line, "--reward-pattern a ", "", 1) + "--micro-batch-size 4 --train-iters 3 --save-interval 9 "
	judge := filepath.Join(dir, "judge")
	text := "#!/bin/sh\ncd " + dir + "\nif [ -e slow ] && [ -e once ]; then touch waiting; sleep 300; fi\n[ ! -e slow ] || touch once\nwhile read -r line; do case \"$line\" in *'and on'*) echo 2;; *) echo 1;; esac; done\n"
	if err := errors.Join(os.WriteFile(judge, []byte(text), 0o755), os.WriteFile(filepath.Join(dir, "slow"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	for _, layout := range []string{"", "--world-size 2 "} {
		line := line + layout + "--reward-command " + judge + " "
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			for ctx.Err() == nil {
				if _, err := os.Stat(filepath.Join(dir, "waiting")); err == nil {
					cancel(errors.New("a test"))
				}
				time.Sleep(10 * time.Millisecond)
			}
		}()
		began := time.Now()
		r := callUntil(t, ctx, dir, line+"--save DIR/save", func(string) {})
		if r.code() != exitcode.Again || !strings.Contains(fmt.Sprint(r.err), "stopped after iteration 1 by a test") || time.Since(began) > 200*time.Second {
			t.Fatalf("code %d after %v: %v", r.code(), time.Since(began), r.err)
		}
		for _, name := range []string{"slow", "once", "waiting"} {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		rest := numbers(must(t, dir, line+"--resume-from-save --save DIR/save").out)
		full := numbers(must(t, dir, line).out)
		if len(full) != 3 || len(rest) != 2 || strings.Join(rest, "\n") != strings.Join(full[1:], "\n") {
			t.Errorf("after the stop\n%s\nat once\n%s", strings.Join(rest, "\n"), strings.Join(full, "\n"))
		}
		if err := errors.Join(os.RemoveAll(filepath.Join(dir, "save")), os.WriteFile(filepath.Join(dir, "slow"), nil, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
}

// Claim: what GRPO does not have is refused by name before anything is loaded.
func TestPolicyRefusals(t *testing.T) {
	dir, line := prompts(t)
	line += "--micro-batch-size 2 "
	plain := strings.Replace(line, "--reward-pattern a ", "", 1)
	for _, c := range []struct{ line, says string }{
		{plain, "--tuning grpo needs a reward"},
		{line + "--world-size 2 --tensor-model-parallel-size 2 --sequence-parallel", "--sequence-parallel cannot be combined with --tuning grpo"},
		{line + "--world-size 2 --context-parallel-size 2", "--context-parallel-size 2 cannot be combined with --tuning grpo"},
		{line + "--global-batch-size 6", "--global-batch-size 6 is not a multiple of --grpo-group-size 4"},
		{line + "--grpo-kl-beta 0.1", "--grpo-kl-beta 0.1 needs --lora-rank or --adapter"},
		{line + "--finetune-packing bfd", "--finetune-packing bfd cannot be combined with --tuning grpo"},
		{line + "--beta 0.1", "--beta needs --tuning dpo"},
		{plain + "--reward-pattern (", "--reward-pattern"},
		{strings.Replace(line, "--tuning grpo", "--tuning sft", 1), "--reward-pattern needs --tuning grpo"},
		{line + "--finetune-data " + filepath.Join(golden.Dir(t, "sft"), "messages.jsonl"), "--tuning grpo needs the field prompt"},
		{line + "--seq-length 4 ", "has a prompt of fewer than 4 tokens"},
	} {
		r := call(t, dir, c.line)
		if r.err == nil || !strings.Contains(r.err.Error(), c.says) {
			t.Errorf("%s: %v; want %s", strings.TrimPrefix(c.line, line), r.err, c.says)
		}
	}
}

// Claim: an evaluation samples an answer to each evaluation prompt: its reward is the same in every layout, however
// rows are dealt out, its loss is that with the sign changed, and it changes nothing of the training; the weights of
// the highest reward can be kept.
func TestPolicyEvaluates(t *testing.T) {
	dir, line := prompts(t)
	line += "--train-iters 4 --lr 1e-2 --min-lr 1e-2 "
	kept := "--finetune-eval-data DIR/held.jsonl --eval-interval 2 --eval-at-start "
	var rows strings.Builder
	for i := range 7 {
		fmt.Fprintf(&rows, "{\"prompt\": \"Say %d\"}\n", i)
	}
	if err := os.WriteFile(filepath.Join(dir, "held.jsonl"), []byte(rows.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	plain := numbers(must(t, dir, line+"--micro-batch-size 16").out)
	var want []telemetry.Entry
	for i, layout := range []string{"--micro-batch-size 16", "--micro-batch-size 2", "--micro-batch-size 2 --world-size 4", "--micro-batch-size 2 --world-size 2 --pipeline-model-parallel-size 2", "--micro-batch-size 4 --world-size 4 --pipeline-model-parallel-size 2"} {
		log := fmt.Sprint("log", i)
		r := must(t, dir, line+kept+layout+" --log-jsonl DIR/"+log)
		got := evaluations(t, filepath.Join(dir, log))
		if i == 0 {
			want = got
			if steps := slices.DeleteFunc(numbers(r.out), func(line string) bool { return strings.Contains(line, "validation") }); strings.Join(steps, "\n") != strings.Join(plain, "\n") {
				t.Errorf("steps with evaluations\n%s\nwithout\n%s", strings.Join(steps, "\n"), strings.Join(plain, "\n"))
			}
		}
		if len(got) != len(want) || len(got) < 3 {
			t.Fatalf("%s: %d evaluations", layout, len(got))
		}
		for k, e := range got {
			if e.Rewarded == nil || *e.Reward != *want[k].Reward || *e.MeanLength != *want[k].MeanLength || float64(e.Loss["lm loss"]) != -float64(*e.Reward) {
				t.Errorf("%s: evaluation %d: %+v, want %+v", layout, k, e.Rewarded, want[k].Rewarded)
			}
		}
	}
	r := must(t, dir, line+kept+"--micro-batch-size 16 --save DIR/save --keep-best")
	if !strings.Contains(r.notes, "validation loss -") {
		t.Errorf("%s", r.notes)
	}
}

// Claim: what is wrong with a line of tuning is reported at once, also where its rows are missing.
func TestPolicyRefusalsTogether(t *testing.T) {
	dir, line := prompts(t)
	line = regexp.MustCompile(`--finetune-data \S+ `).ReplaceAllString(line, "")
	r := call(t, dir, line+"--micro-batch-size 2 --world-size 4 --tensor-model-parallel-size 2 --sequence-parallel --context-parallel-size 2 --grpo-kl-beta 0.1 --train-on-prompts --beta 0.1")
	if r.code() != exitcode.Usage || !strings.HasPrefix(r.err.Error(), "6 problems:") {
		t.Fatalf("code %d: %v", r.code(), r.err)
	}
	for _, says := range []string{"--tuning grpo needs --finetune-data", "--sequence-parallel cannot be combined with --tuning grpo", "--context-parallel-size 2 cannot be combined with --tuning grpo",
		"--grpo-kl-beta 0.1 needs --lora-rank or --adapter", "--train-on-prompts needs --tuning sft", "--beta needs --tuning dpo, ipo, orpo, simpo or kto"} {
		if !strings.Contains(r.err.Error(), says) {
			t.Errorf("the list lacks %q: %v", says, r.err)
		}
	}
}
