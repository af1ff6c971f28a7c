package training

import (
	"context"
	"encoding/json"
	"math"
	"regexp"
	"slices"
	"time"

	"monotron/dataset/sft"
	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint/native"
	"monotron/megatron/engine"
	"monotron/megatron/policy"
)

// sampling is the objective of GRPO on one rank: before a step answers are sampled to its prompts and
// rewarded, and the step learns them by their advantages. What is known of the answers of a global batch
// all ranks know, so that a run continues in any layout.
type sampling struct {
	options policy.Options
	rewards []policy.Reward
	ends    []int32 // tokens that end an answer

	answers *answers // of the steps now; nil: none are sampled yet
	set     *sft.Prompts
	fresh   bool // the weights are those that the answers were sampled with
	tally   sampledTally

	collect func(index int, logps []float64) // where given, nothing is weighed
}

// answers are those of a global batch, by their position in it.
type answers struct {
	Generation int64       `json:"generation"` // number of the batch among those that were sampled
	IDs        [][]int32   `json:"ids"`        // the token that ends an answer included
	Ended      []bool      `json:"ended"`      // by such a token
	LogPs      [][]float32 `json:"logps"`      // of its tokens as sampled
	Reference  [][]float64 `json:"reference,omitempty"`
	Rewards    [][]float64 `json:"rewards"` // of each reward
	advantages []float64   // of the sums of rewards
	same       float64     // share of answers in groups whose rewards are equal
}

// answersKey is their key in State.Extra.
const answersKey = "sampled_answers"

// beginSampling prepares GRPO, before the weights are loaded.
func (r *Run) beginSampling() error {
	t := &r.Config.Tuning
	if !t.Samples() {
		return nil
	}
	// The rewards, in the order in which they are logged.
	s := &sampling{options: t.Policy.Options}
	if t.Policy.Exact {
		s.rewards = append(s.rewards, policy.Exact{})
	}
	if t.Policy.Pattern != "" {
		match, err := regexp.Compile(t.Policy.Pattern)
		if err != nil {
			return exitcode.Errorf(exitcode.Usage, "--reward-pattern: %w", err)
		}
		s.rewards = append(s.rewards, policy.Pattern{Match: match})
	}
	if t.Policy.Command != "" {
		s.rewards = append(s.rewards, policy.Command{Line: t.Policy.Command, Time: time.Duration(t.Policy.CommandFor) * time.Second})
	}
	r.sampler = s
	r.setObjective(s)
	if r.device.Counts() {
		return nil
	}
	// An answer ends at either of these tokens.
	settings, err := TuningConfig(&r.Config, r.Tokenizer)
	for _, id := range []int32{settings.EOSID, settings.EndID} {
		if id >= 0 && !slices.Contains(s.ends, id) {
			s.ends = append(s.ends, id)
		}
	}
	return err
}

// continueAnswers takes over the answers that a checkpoint's next steps learn from.
func (r *Run) continueAnswers(state native.State) error {
	raw := state.Extra[answersKey]
	if r.sampler == nil || len(raw) == 0 {
		return nil
	}
	a := &answers{}
	if err := json.Unmarshal(raw, a); err != nil {
		return exitcode.Errorf(exitcode.IO, "the sampled answers in the checkpoint of iteration %d cannot be used: %w", state.Iteration, err)
	}
	n := len(a.IDs)
	for _, other := range []int{len(a.Ended), len(a.LogPs)} {
		if other != n || n != r.Config.GlobalBatchSize {
			return nil // of another batch: they are sampled again
		}
	}
	for i, ids := range a.IDs {
		if len(a.LogPs[i]) != len(ids) || a.Reference != nil && (len(a.Reference) != n || len(a.Reference[i]) != len(ids)) {
			return exitcode.Errorf(exitcode.IO, "the sampled answers in the checkpoint of iteration %d have the log-probabilities of other tokens", state.Iteration)
		}
	}
	if len(a.Rewards) != len(r.sampler.rewards) || slices.ContainsFunc(a.Rewards, func(list []float64) bool { return len(list) != n }) {
		return nil // rewards are given otherwise now
	}
	r.sampler.answers = a
	a.weigh(&r.sampler.options)
	return nil
}

// weigh finds the advantages of the answers.
func (a *answers) weigh(o *policy.Options) {
	a.advantages, a.same = policy.Advantages(a.sums(), o.Group, o.Scale)
}

// sums are the answers' rewards.
func (a *answers) sums() []float64 {
	all := make([]float64, len(a.IDs))
	for _, list := range a.Rewards {
		for i, x := range list {
			all[i] += x
		}
	}
	return all
}

// begin samples answers where the step's are not there yet, and puts them into its micro-batches.
func (s *sampling) begin(ctx context.Context, r *Run, f *Feed, batch []*engine.Micro) error {
	size := int64(r.Config.GlobalBatchSize)
	step := r.at.ConsumedTrain/size - 1
	generation := step / int64(s.options.Iterations)
	s.set, s.fresh, s.tally = sft.PromptsOf(f.set), step%int64(s.options.Iterations) == 0, newSampledTally()
	if s.answers == nil || s.answers.Generation != generation {
		if !s.fresh {
			r.log.note("the sampled answers of step %d are missing; new ones are sampled with the current weights", step)
			s.fresh = true
		}
		if err := s.sample(ctx, r, f, batch, generation); err != nil {
			return err
		}
	}
	s.lay(f, batch)
	return nil
}

// beginEvaluation has nothing to do: see evaluate.
func (s *sampling) beginEvaluation(*Run, *Feed, int64, int, int) error { return nil }

// evaluate samples an answer to each prompt that a feed gives from the consumed samples on. The loss is their mean reward
// with its sign changed.
func (s *sampling) evaluate(ctx context.Context, r *Run, f *Feed, consumed int64, iters, micros int) (e evaluated, err error) {
	set := sft.PromptsOf(f.set)
	if r.device.Counts() || set == nil {
		return e, nil
	}
	// The rows of all data-parallel ranks: 1 for those that this rank's micro-batches have.
	mine := make([]float64, set.Len())
	for range iters {
		batch, err := f.Batch(consumed, micros)
		if err != nil {
			return e, err
		}
		for _, m := range batch {
			for _, row := range m.Rows {
				if row >= 0 {
					mine[row] = 1
				}
			}
		}
		consumed += int64(micros) * f.sampler.Advance()
	}
	counts, err := r.sum(mine)
	if err != nil {
		return e, err
	}
	// Each row is answered once, by one of them.
	rows, list := make([]int64, len(counts)), []asked(nil)
	for row, n := range counts { // data-parallel ranks take turns
		if rows[row] = int64(row); n == 0 {
			rows[row] = -1
		} else if row%r.rank.Sizes.DP == r.rank.Coordinates.DP {
			list = append(list, asked{int64(row), row, 1<<31 | uint32(row)})
		}
	}
	a, err := s.answered(ctx, r, set, list, rows)
	if err != nil {
		return e, err
	}
	// Rewards as they are: groups of one, without a scale.
	a = a.some(rows)
	a.weigh(&policy.Options{Group: 1, Scale: policy.Unscaled})
	e.preference, e.loss = a.values(s.rewards), -mean(a.sums())
	return e, nil
}

// some are the answers that were asked for.
func (a *answers) some(rows []int64) *answers {
	out := &answers{Rewards: make([][]float64, len(a.Rewards))}
	for i, row := range rows {
		if row < 0 {
			continue
		}
		out.IDs, out.Ended = append(out.IDs, a.IDs[i]), append(out.Ended, a.Ended[i])
		for k := range a.Rewards {
			out.Rewards[k] = append(out.Rewards[k], a.Rewards[k][i])
		}
	}
	return out
}

// lay puts prompts with their answers into micro-batches.
func (s *sampling) lay(f *Feed, batch []*engine.Micro) {
	filled := make([]int, len(batch))
	for i, m := range batch {
		for k, row := range m.Rows {
			ids := s.answers.IDs[m.Samples[k]]
			one := s.set.With(row, ids)
			m.Tokens[k], m.Labels[k], m.LossMask[k], m.PositionIDs[k] = one.Tokens, one.Labels, one.LossMask, one.PositionIDs
			filled[i] = max(filled[i], len(s.set.Rows[row].IDs)+len(ids))
		}
	}
	f.shorten(batch, filled)
}

// Weigh is that of engine.Objective.
func (s *sampling) Weigh(m *engine.Micro, losses []float32) (slopes []float32, loss, count float64) {
	slopes = make([]float32, len(losses))
	b := len(m.Rows)
	for i, row := range m.Rows {
		index := int(m.Samples[i])
		ids, from := s.answers.IDs[index], len(s.set.Rows[row].IDs)
		a := policy.Answer{Policy: make([]float64, len(ids)), Sampled: make([]float64, len(ids))}
		for t := range ids { // token t of the answer is predicted at from+t−1
			a.Policy[t] = -float64(losses[(from+t-1)*b+i])
			if s.collect == nil {
				a.Sampled[t] = float64(s.answers.LogPs[index][t])
			}
		}
		if s.collect != nil {
			s.collect(index, a.Policy)
			continue
		}
		a.Advantage = s.answers.advantages[index]
		if s.answers.Reference != nil {
			a.Reference = s.answers.Reference[index]
		}
		terms := s.options.Of(&a)
		n, _ := s.options.Weight(len(ids))
		loss, count = loss+terms.Loss, count+n
		for t := range ids {
			slopes[(from+t-1)*b+i] = float32(-terms.Slopes[t])
		}
		s.tally.add(&a, &terms, s.options.Sequences)
	}
	return slopes, loss, count
}

// ReadsAll is that of engine.Objective.
func (s *sampling) ReadsAll() bool { return false }

// sampledTally is what a rank's answers tell of a step.
type sampledTally struct {
	answers, tokens       float64
	low, high, kl         float64 // sums over tokens (with ratios of answers: over answers)
	apart, ratio          float64 // sums over tokens of |log p − log p as sampled|, and of ratios
	mostApart             float64
	leastRatio, mostRatio float64
	leastLow, mostHigh    float64 // shares of an answer's tokens
}

func newSampledTally() sampledTally {
	return sampledTally{leastRatio: math.Inf(1), mostRatio: math.Inf(-1), leastLow: math.Inf(1), mostHigh: math.Inf(-1)}
}

// add takes an answer.
func (t *sampledTally) add(a *policy.Answer, terms *policy.Terms, sequences bool) {
	n := float64(len(a.Policy))
	t.answers, t.tokens = t.answers+1, t.tokens+n
	t.low, t.high, t.kl = t.low+terms.Low, t.high+terms.High, t.kl+terms.KL
	for i, p := range a.Policy {
		off := math.Abs(p - a.Sampled[i])
		t.apart, t.mostApart = t.apart+off, math.Max(t.mostApart, off)
		t.ratio += math.Exp(p - a.Sampled[i])
	}
	t.leastRatio, t.mostRatio = math.Min(t.leastRatio, terms.Ratio[0]), math.Max(t.mostRatio, terms.Ratio[1])
	if sequences {
		n = 1
	}
	t.leastLow, t.mostHigh = math.Min(t.leastLow, terms.Low/n), math.Max(t.mostHigh, terms.High/n)
}
