package pretrain

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint/native"
	"monotron/megatron/training"
)

// judged trains until the validation loss rises: the rate is too high for the tiny model.
const judged = "--eval-interval 2 --eval-iters 1 --full-validation --train-iters 40 --lr 0.3 --min-lr 0.3 --keep-last 1 --keep-best --early-stopping-patience 3 --eval-at-start "

// savedIn are the iterations of the checkpoints in a folder, and what the newest says of evaluations.
func savedIn(t *testing.T, folder string) (iterations []int64, best training.Best) {
	t.Helper()
	list, err := native.List(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		iterations = append(iterations, e.Iteration)
	}
	b, err := training.BestOf(folder)
	if err != nil || b == nil {
		t.Fatalf("%v: %v", b, err)
	}
	return iterations, *b
}

// Claim: training ends after --early-stopping-patience evaluations without a lower loss; the checkpoint
// of the lowest and the newest remain, under every layout; run again, it trains no further.
func TestBestIsKept(t *testing.T) {
	dir := t.TempDir()
	base := tiny + someData + judged + "--save DIR/save --resume-from-save --load DIR/save "
	r := must(t, dir, base)
	iterations, best := savedIn(t, filepath.Join(dir, "save"))
	if best.Iteration == 0 || best.Worse != 3 || best.Last != best.Iteration+6 || best.Last >= 40 || best.Start == nil {
		t.Fatalf("%+v\n%s", best, r.notes)
	}
	if !slices.Equal(iterations, []int64{best.Iteration, best.Last}) {
		t.Errorf("checkpoints %v, want %d and %d", iterations, best.Iteration, best.Last)
	}
	if !strings.Contains(r.notes, "since then: 3") || strings.Count(r.out, "validation loss at iteration") != int(best.Last)/2+2 {
		t.Errorf("%s\n%s", r.notes, r.out)
	}
	for i, layout := range []string{"--pipeline-model-parallel-size 2", "--tensor-model-parallel-size 2", "--world-size 2"} {
		folder := fmt.Sprint("layout", i)
		must(t, dir, tiny+someData+judged+"--world-size 2 "+layout+" --save DIR/"+folder)
		others, other := savedIn(t, filepath.Join(dir, folder))
		if !slices.Equal(others, iterations) || math.Abs(other.Loss-best.Loss) > 1e-4 {
			t.Errorf("%s: checkpoints %v, %+v; one rank %v, %+v", layout, others, other, iterations, best)
		}
	}
	r = must(t, dir, base)
	again, same := savedIn(t, filepath.Join(dir, "save"))
	if !slices.Equal(again, iterations) || same.Last != best.Last || !strings.Contains(r.notes, "nothing to train") {
		t.Errorf("run again: checkpoints %v, %+v\n%s", again, same, r.notes)
	}
}

// Claim: a run stopped in steps and in an evaluation, and resumed, has the evaluations and keeps the
// weights of an undisturbed one.
func TestBestUnderResume(t *testing.T) {
	dir := t.TempDir()
	base := tiny + someData + judged
	must(t, dir, base+"--save DIR/whole")
	want, wantBest := savedIn(t, filepath.Join(dir, "whole"))
	for _, stopAfter := range []string{"iteration        1/", "iteration        2/", "iteration        5/", "iteration        6/", ""} {
		ctx, cancel := context.WithCancelCause(context.Background())
		r := callUntil(t, ctx, dir, base+"--save DIR/part --resume-from-save", func(text string) {
			if stopAfter != "" && strings.Contains(text, stopAfter) {
				cancel(errors.New("a test"))
			}
		})
		cancel(nil)
		if code := r.code(); stopAfter != "" && code != exitcode.Again || stopAfter == "" && r.err != nil {
			t.Fatalf("stop after %q: code %d: %v\n%s", stopAfter, code, r.err, r.notes)
		}
	}
	got, gotBest := savedIn(t, filepath.Join(dir, "part"))
	if *gotBest.Start != *wantBest.Start {
		t.Errorf("loss before the first step %v, want %v", *gotBest.Start, *wantBest.Start)
	}
	gotBest.Start = wantBest.Start
	if !slices.Equal(got, want) || gotBest != wantBest {
		t.Fatalf("checkpoints %v, %+v; want %v, %+v", got, gotBest, want, wantBest)
	}
	if a, b := weights(t, filepath.Join(dir, "part")), weights(t, filepath.Join(dir, "whole")); a != b {
		t.Errorf("last weights %s, want %s", a, b)
	}
}

// Claim: what cannot be compared is refused before training.
func TestBestIsRefused(t *testing.T) {
	dir := t.TempDir()
	for flags, says := range map[string]string{
		"--keep-best --save DIR/a --ckpt-format torch": "--keep-best cannot be combined with --ckpt-format torch",
		"--keep-best --save DIR/b --eval-iters 0":      "need --eval-iters above 0",
		"--early-stopping-patience 2 --split 1,0,0":    "the run has no validation data",
	} {
		if r := call(t, dir, tiny+someData+flags); r.code() != exitcode.Usage || !strings.Contains(r.err.Error(), says) {
			t.Errorf("%s: code %d, %v; want %s", flags, r.code(), r.err, says)
		}
	}
}
