package pretrain

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"monotron/megatron/checkpoint"
)

// Claim: --eval-at-start evaluates and samples before the first step of a new run, which
// then trains as without it; a run that goes on from a checkpoint does neither.
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

// Claim: --save without --save-interval keeps one checkpoint, of the last iteration.
func TestSaveAtTheEnd(t *testing.T) {
	dir := t.TempDir()
	r := must(t, dir, tiny+someData+"--save DIR/c")
	list, err := checkpoint.List(filepath.Join(dir, "c"))
	if err != nil || len(list) != 1 || list[0].Iteration != 6 || !strings.Contains(r.notes, "--save without --save-interval") {
		t.Errorf("%v, %v\n%s", list, err, r.notes)
	}
}
