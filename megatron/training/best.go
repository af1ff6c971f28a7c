package training

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint/native"
)

// Best says which evaluation had the lowest validation loss so far. It is a part of a run's state, so
// that a resumed run keeps, and stops at, what an undisturbed one would.
type Best struct {
	Iteration int64    `json:"iteration"`       // 0: none yet
	Loss      float64  `json:"loss"`            // of that iteration, nats a token
	Start     *float64 `json:"start,omitempty"` // loss before the first step; nil: not measured
	Last      int64    `json:"last"`            // iteration of the newest evaluation
	Worse     int      `json:"worse"`           // evaluations since Iteration
}

// bestKey is Best's key in State.Extra.
const bestKey = "best_evaluation"

// watchBest begins to compare evaluations, where the run asks for it. It comes before restore.
func (r *Run) watchBest() error {
	if c := &r.Config; (c.Checkpoint.KeepBest || c.Patience > 0) && !c.SkipTrain {
		r.best = &Best{}
	}
	return nil
}

// checkBest refuses a comparison of evaluations for a run without validation data.
func (r *Run) checkBest() error {
	if r.best != nil && r.feeds.valid == nil && !r.device.Counts() {
		return exitcode.Errorf(exitcode.Usage, "--keep-best and --early-stopping-patience compare validation losses, but the run has no validation data; give --finetune-eval-data, or a --split with validation data")
	}
	return nil
}

// judge compares an evaluation with those before, and says what came of it.
func (r *Run) judge(e *evaluated) {
	b, it := r.best, r.Engine.Iteration
	if b == nil || r.device.Counts() {
		return
	}
	r.log.note("iteration %d: validation loss %.4f%s%s", it, e.loss, accuracyText(e.accuracy), b.add(it, e.loss))
}

func accuracyText(share *float64) string {
	if share == nil {
		return ""
	}
	return fmt.Sprintf(", token accuracy %.4f", *share)
}

// add takes an evaluation and says in words how it compares. A loss that is not a number is worse than
// any other; iteration 0 is what tuning starts from, and no candidate.
func (b *Best) add(iteration int64, loss float64) string {
	b.Last = iteration
	if iteration == 0 {
		if !math.IsNaN(loss) && !math.IsInf(loss, 0) {
			b.Start = &loss
		}
		return ", before the first step"
	}
	if !math.IsNaN(loss) && !math.IsInf(loss, 0) && (b.Iteration == 0 || loss < b.Loss) {
		b.Iteration, b.Loss, b.Worse = iteration, loss, 0
		return ", the lowest so far"
	}
	if b.Worse++; b.Iteration == 0 {
		return ", not a finite number"
	}
	return fmt.Sprintf("; the lowest is %.4f at iteration %d, evaluations since then: %d", b.Loss, b.Iteration, b.Worse)
}

// exhausted reports whether so many evaluations brought no lower loss that training ends.
func (r *Run) exhausted() bool {
	return r.best != nil && r.Config.Patience > 0 && r.best.Worse >= r.Config.Patience
}

// unjudged reports whether the weights as they are lack the evaluation that a run with Best makes of them.
func (r *Run) unjudged() bool {
	it := r.Engine.Iteration
	return r.best != nil && it > 0 && r.best.Last != it && (due(it, r.Config.EvalInterval) || it >= r.iters)
}

// catchUp makes the evaluation that a stopped run has left out before its last checkpoint, and saves
// that checkpoint again with the result.
func (r *Run) catchUp(ctx context.Context) error {
	if !r.unjudged() {
		return nil
	}
	if err := r.evaluateNow(ctx); err != nil || r.unjudged() {
		return err // stopped again
	}
	r.saver.saved = -1
	return r.saver.finish(ctx, r)
}

// keptBest is the iteration of the checkpoint that --keep-best keeps; 0: none.
func (r *Run) keptBest() int64 {
	if r.best == nil || !r.Config.Checkpoint.KeepBest {
		return 0
	}
	return r.best.Iteration
}

// continueBest takes over a checkpoint's record of evaluations before it. The best one's weights are
// next to that checkpoint, so that a run which saves to another folder starts the record again.
func (r *Run) continueBest(s native.State) error {
	c := &r.Config.Checkpoint
	raw := s.Extra[bestKey]
	if r.best == nil || len(raw) == 0 || c.Save != c.Load {
		return nil
	}
	var b Best
	if err := json.Unmarshal(raw, &b); err != nil || b.Iteration < 0 || b.Iteration > s.Iteration || b.Worse < 0 {
		return exitcode.Errorf(exitcode.IO, "the record of evaluations in the checkpoint of iteration %d cannot be used: %w", s.Iteration, cmp.Or(err, fmt.Errorf("%s", raw)))
	}
	if c.KeepBest && b.Iteration > 0 {
		list, err := native.List(c.Save)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(list, func(e native.Entry) bool { return e.Iteration == b.Iteration }) {
			r.log.note("the checkpoint with the lowest validation loss, that of iteration %d, is no longer in %s, so earlier evaluations no longer count", b.Iteration, c.Save)
			b = Best{Start: b.Start, Last: b.Last}
		}
	}
	*r.best = b
	return nil
}

// BestOf is what the newest sound checkpoint in folder says of the run's evaluations; nil: it compared none.
func BestOf(folder string) (*Best, error) {
	f, err := native.OpenSound(folder, -1)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw := f.Manifest.State.Extra[bestKey]
	if len(raw) == 0 {
		return nil, nil
	}
	var b Best
	if err := json.Unmarshal(raw, &b); err != nil {
		return nil, exitcode.Errorf(exitcode.IO, "%s: the record of evaluations cannot be read: %w", f.Path, err)
	}
	return &b, nil
}
