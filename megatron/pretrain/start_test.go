package pretrain

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint/native"
)

// Claim: --eval-at-start evaluates and samples before the first step of a new run, which
// then trains as without it; a run that continues from a checkpoint does neither.
func TestEvaluationAtStart(t *testing.T) {
	dir := t.TempDir()
	plain := numbers(must(t, dir, tiny+someData).out)
	r := must(t, dir, tiny+someData+"--eval-at-start --sample-prompt 7 --sample-tokens 4 --save DIR/c --save-interval 3")
	lines := numbers(r.out)
	if !strings.Contains(lines[0], "validation loss at iteration 0 |") || !strings.Contains(r.notes, "sample at iteration 0: ") {
		t.Errorf("nothing at the start:\n%s\n%s", r.out, r.notes)
	}
	steps := func(lines []string) []string {
		return slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return !strings.Contains(l, "consumed samples") })
	}
	if !slices.Equal(steps(lines), steps(plain)) {
		t.Errorf("the steps differ:\n%q\n%q", steps(lines), steps(plain))
	}
	again := must(t, dir, tiny+someData+"--eval-at-start --load DIR/c --ckpt-step 3")
	if strings.Contains(again.out, "at iteration 0 |") || strings.Contains(again.out, "at iteration 3 |") {
		t.Errorf("a resumed run evaluates at its start:\n%s", again.out)
	}
}

// Claim: a checkpoint of a run with frozen parameters continues bit for bit, from another
// layout's too, and without the flag, where their moments start at 0.
func TestResumeFrozen(t *testing.T) {
	const frozen = "--freeze-parameters embedding.* decoder.layers.0.* "
	for _, precision := range []string{"", "--bf16 "} {
		dir := t.TempDir()
		full := must(t, dir, tiny+someData+precision+frozen+"--save DIR/whole --save-interval 3")
		if !strings.Contains(full.notes, "3312 of 7648 parameters of the model are trained; 14 tensors are frozen") {
			t.Errorf("nothing is told of what is trained:\n%s", full.notes)
		}
		part := must(t, dir, tiny+someData+precision+frozen+"--load DIR/whole --ckpt-step 3 --save DIR/part")
		sameEnd(t, numbers(part.out), numbers(full.out))
		if got, want := weights(t, filepath.Join(dir, "part")), weights(t, filepath.Join(dir, "whole")); got != want {
			t.Errorf("%s: weights %s, want %s", precision, got, want)
		}
		two := must(t, dir, tiny+someData+precision+frozen+"--world-size 2 --use-distributed-optimizer --save DIR/two --save-interval 3")
		must(t, dir, tiny+someData+precision+frozen+"--load DIR/two --ckpt-step 3")
		back := must(t, dir, tiny+someData+precision+frozen+"--world-size 2 --use-distributed-optimizer --load DIR/two --ckpt-step 3")
		sameEnd(t, numbers(back.out), numbers(two.out))
		thawed := must(t, dir, tiny+someData+precision+"--load DIR/whole --ckpt-step 3 --save DIR/thawed")
		if !strings.Contains(thawed.notes, "14 parameters were frozen in this checkpoint") || weights(t, filepath.Join(dir, "thawed")) == weights(t, filepath.Join(dir, "whole")) {
			t.Errorf("nothing is thawed:\n%s", thawed.notes)
		}
	}
	dir := t.TempDir()
	must(t, dir, tiny+someData+"--save DIR/all --save-interval 3")
	if r := must(t, dir, tiny+someData+frozen+"--load DIR/all --ckpt-step 3"); !strings.Contains(r.notes, "not used by this run (28)") {
		t.Errorf("moments of frozen parameters are not named:\n%s", r.notes)
	}
}

// Claim: --save without --save-interval keeps one checkpoint, of the last iteration.
func TestSaveAtTheEnd(t *testing.T) {
	dir := t.TempDir()
	r := must(t, dir, tiny+someData+"--save DIR/c")
	list, err := native.List(filepath.Join(dir, "c"))
	if err != nil || len(list) != 1 || list[0].Iteration != 6 || !strings.Contains(r.notes, "--save is given without --save-interval") {
		t.Errorf("%v, %v\n%s", list, err, r.notes)
	}
}

// Claim: --eval-train-iters reports the loss on the run's first batches with each
// validation loss; before the first step that is the first step's own. The steps are
// those of a run without it.
func TestTrainingLossIsEstimated(t *testing.T) {
	dir := t.TempDir()
	loss := regexp.MustCompile(`lm loss[^:]*: ([0-9.E+-]+)`)
	r := must(t, dir, tiny+someData+"--eval-at-start --eval-interval 2 --eval-train-iters 1 --hidden-dropout 0 --attention-dropout 0")
	plain := must(t, dir, tiny+someData+"--eval-at-start --eval-interval 2 --hidden-dropout 0 --attention-dropout 0")
	var first, step string
	var rest []string
	for _, l := range numbers(r.out) {
		if m := loss.FindStringSubmatch(l); strings.Contains(l, "train loss at iteration 0 |") && m != nil {
			first = m[1]
		} else if strings.Contains(l, "consumed samples") && step == "" {
			step = m[1]
		}
		if strings.Contains(l, "consumed samples") {
			rest = append(rest, l)
		}
	}
	if first == "" || first != step || strings.Count(r.out, "train loss at iteration") != 4 {
		t.Errorf("estimate %q, first step %q:\n%s", first, step, r.out)
	}
	if all := slices.DeleteFunc(numbers(plain.out), func(l string) bool { return !strings.Contains(l, "consumed samples") }); !slices.Equal(all, rest) {
		t.Errorf("the steps differ:\n%q\n%q", rest, all)
	}
}

// Claim: --save-on-load keeps what a run begins with, which under another layout is the
// checkpoint that it loaded, number by number; a folder in which a run saves is refused.
func TestSaveOnLoad(t *testing.T) {
	dir := t.TempDir()
	must(t, dir, tiny+someData+"--save DIR/c --save-interval 3")
	r := must(t, dir, tiny+someData+"--load DIR/c --ckpt-step 3 --save-on-load DIR/begin --world-size 2 --tensor-model-parallel-size 2")
	if !strings.Contains(r.notes, "saved the initial state, iteration 3") {
		t.Error(r.notes)
	}
	loaded, saved := weights(t, filepath.Join(dir, "c", "iter_0000003")), weights(t, filepath.Join(dir, "begin"))
	if loaded != saved {
		t.Errorf("%s was loaded, %s saved", loaded, saved)
	}
	if err := call(t, dir, tiny+someData+"--load DIR/c --save-on-load DIR/c").err; exitcode.CodeOf(err) != exitcode.Usage || !strings.Contains(err.Error(), "--save-on-load") {
		t.Error(err)
	}
}
