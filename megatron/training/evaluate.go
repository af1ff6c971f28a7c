package training

import (
	"context"
	"errors"
	"fmt"
	"math"

	"monotron/internal/exitcode"
	"monotron/megatron/telemetry"
	"monotron/mpu/health"
)

// evaluateAt measures the loss of a feed over --eval-iters global batches, from
// the samples not yet used on, or over all of it with --full-validation.
func (r *Run) evaluateAt(ctx context.Context, where string, f *Feed, test bool) error {
	consumed, split := &r.at.ConsumedValid, telemetry.Validation
	if test {
		consumed, split = new(int64), telemetry.Test
	}
	micros := r.Config.EvalGlobalBatchSize / (r.Config.EvalMicroBatchSize * r.Config.Layout.DP)
	iters := r.Config.EvalIters
	if r.Config.FullValidation && !test {
		consumed, micros, iters = new(int64), 1, int((f.set.Len()+f.sampler.Advance()-1)/f.sampler.Advance())
	}
	loss, cut, err := r.lossOf(ctx, where, f, *consumed, iters, micros)
	// Of one that was cut short too: later ones see what they would have seen.
	*consumed += int64(iters) * int64(micros) * f.sampler.Advance()
	if cut || err != nil {
		return err
	}
	written, err := r.samples()
	if err := errors.Join(r.log.validation(r, where, split, loss, written), err); err != nil {
		return err
	}
	if !test {
		r.judge(&loss)
	}
	for _, s := range written {
		r.log.note("sample at %s: %q", where, s.Text)
	}
	return nil
}

// evaluated is what an evaluation measured.
type evaluated struct {
	loss        float64  // nats a token
	bitsPerByte *float64 // nil: the bytes are not known
	accuracy    *float64 // of supervised tuning: the share of tokens that are predicted right; nil: another run
	preference  []telemetry.Value
}

// lossOf is the mean loss over global batches of a feed from the consumed samples on; cut
// reports that a rank was asked to stop meanwhile.
func (r *Run) lossOf(ctx context.Context, where string, f *Feed, consumed int64, iters, micros int) (e evaluated, cut bool, err error) {
	// GRPO evaluates by sampling.
	if r.sampler != nil {
		if e, err = r.sampler.evaluate(ctx, r, f, consumed, iters, micros); errors.Is(err, errStopped) {
			return e, true, nil
		} else if err != nil {
			err = fmt.Errorf("evaluation at %s: %w", where, err)
		}
		return e, false, err
	}
	// Sums over all batches of all ranks: loss, tokens, bytes.
	var sum, tokens, bytes float64
	if r.objective != nil {
		if err := r.objective.beginEvaluation(r, f, consumed, iters, micros); err != nil {
			return e, false, fmt.Errorf("evaluation at %s: %w", where, err)
		}
	}
	r.Engine.Accuracy, r.Engine.Right = r.Config.Tuning.Data != "" && r.objective == nil, 0
	for range iters {
		r.rank.Enter(health.Eval, r.Engine.Iteration)
		stop, err := r.interrupted(ctx)
		if err != nil {
			return e, false, err
		}
		if stop {
			r.log.note("the evaluation at %s is incomplete", where)
			return e, true, nil
		}
		batch, err := f.Batch(consumed, micros)
		if err != nil {
			return e, false, fmt.Errorf("evaluation at %s: %w", where, err)
		}
		if err := r.beginBatch(ctx, f, batch); err != nil {
			return e, false, err
		}
		s, n, err := r.Engine.Loss(batch)
		if err != nil {
			return e, false, err
		}
		sum, tokens = sum+s, tokens+n
		if r.bytes != nil {
			bytes += r.bytes.of(batch)
		}
		consumed += int64(micros) * f.sampler.Advance()
	}
	// Means, and what the objective adds.
	e.loss = sum / math.Max(1, tokens)
	if e.accuracy, err = r.accuracy(tokens); err != nil {
		return e, false, err
	}
	if r.objective != nil {
		if e.preference, err = r.objective.values(r); err != nil {
			return e, false, err
		}
	}
	if r.bytes != nil {
		e.bitsPerByte, err = r.log.bitsPerByte(sum, bytes)
	}
	return e, false, err
}

// accuracy is the share of the tokens that were predicted right, on all ranks; nil: nobody counted.
func (r *Run) accuracy(tokens float64) (*float64, error) {
	if !r.Engine.Accuracy {
		return nil, nil
	}
	right, err := r.log.total(r.Engine.Right)
	right /= math.Max(1, tokens)
	return &right, err
}

// estimate measures the training set (--eval-train-iters): the first global batches of the
// run, the same each time, in the order that it trains on them.
func (r *Run) estimate(ctx context.Context) error {
	iters, f := r.Config.EvalTrainIters, r.feeds.again
	if iters == 0 || f == nil {
		return nil
	}
	micros := max(1, r.Config.GlobalBatchSize/(r.Config.MicroBatchSize*r.Config.Layout.DP))
	where := fmt.Sprintf("iteration %d", r.Engine.Iteration)
	loss, cut, err := r.lossOf(ctx, where, f, 0, iters, micros)
	if cut || err != nil {
		return err
	}
	return r.log.validation(r, where, telemetry.Train, loss, nil)
}

// evaluateNow measures the validation set between two steps, where there is one, and
// before it what the training set is estimated by.
func (r *Run) evaluateNow(ctx context.Context) error {
	if err := r.estimate(ctx); err != nil {
		return err
	}
	if r.feeds.valid == nil || !r.Config.Validates() {
		return nil
	}
	return r.evaluateAt(ctx, fmt.Sprintf("iteration %d", r.Engine.Iteration), r.feeds.valid, false)
}

// finalEvaluations measures validation and test sets after training.
func (r *Run) finalEvaluations(ctx context.Context) error {
	if !r.Config.Validates() {
		return nil
	}
	at := fmt.Sprintf("iteration %d on ", r.Engine.Iteration)
	if r.feeds.valid != nil && (r.best == nil || r.best.Last != r.Engine.Iteration) { // Best has seen these weights
		if err := r.evaluateAt(ctx, at+"validation set", r.feeds.valid, false); err != nil {
			return err
		}
	}
	if r.feeds.test != nil && r.Config.EvalIters > 0 {
		if err := r.evaluateAt(ctx, at+"test set", r.feeds.test, true); err != nil {
			return err
		}
	}
	if stop, err := r.interrupted(ctx); stop || err != nil {
		return errors.Join(err, exitcode.Errorf(exitcode.Again, "stopped by %s during the last evaluation; run the same command again to evaluate", r.cause(ctx)))
	}
	return nil
}

// interrupted reports whether a rank was asked to stop.
func (r *Run) interrupted(ctx context.Context) (bool, error) {
	seen := nothing
	if ctx.Err() != nil {
		seen = signalled
	}
	seen, err := r.agree(seen)
	return seen == signalled, err
}
