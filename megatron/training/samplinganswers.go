package training

import (
	"context"
	"fmt"
	"math"
	"slices"

	"monotron/dataset"
	"monotron/dataset/sft"
	"monotron/internal/exitcode"
	"monotron/megatron/config"
	"monotron/megatron/engine"
	"monotron/megatron/inference"
	"monotron/megatron/policy"
	"monotron/mpu/health"
	"monotron/mpu/topology"
	"monotron/tokenizer"
)

// promptData opens the prompts of --finetune-data.
func promptData(c *config.Run, tok tokenizer.Tokenizer, s sft.Config) (sets [3]dataset.Dataset, err error) {
	prompts, err := sft.NewPrompts(c.Tuning.Data, tok, s)
	if err != nil {
		return sets, fmt.Errorf("--finetune-data: %w", err)
	}
	if c.Data.Notice != nil {
		c.Data.Notice(fmt.Sprintf("%s: %s", c.Tuning.Data, prompts))
	}
	sets[dataset.Train] = sft.Grouped(prompts, s, sft.Groups{Size: c.Tuning.Policy.Group, Batch: c.GlobalBatchSize, Iterations: c.Tuning.Policy.Iterations})
	if c.Tuning.EvalData == "" {
		return sets, nil
	}
	evaluated, err := sft.NewPrompts(c.Tuning.EvalData, tok, s)
	if err != nil {
		return sets, fmt.Errorf("--finetune-eval-data: %w", err)
	}
	if c.Data.Notice != nil {
		c.Data.Notice(fmt.Sprintf("%s: %s", c.Tuning.EvalData, evaluated))
	}
	sets[dataset.Valid] = evaluated
	return sets, nil
}

// mostAtOnce is how many answers a rank samples at once.
const mostAtOnce = 64

// sample has answers sampled to the prompts of a batch, and rewards them.
func (s *sampling) sample(ctx context.Context, r *Run, f *Feed, batch []*engine.Micro, generation int64) error {
	c := &r.Config
	var list []asked
	for _, m := range batch {
		for k, row := range m.Rows {
			list = append(list, asked{row, int(m.Samples[k]), uint32(generation*int64(c.GlobalBatchSize) + int64(m.Samples[k]))})
		}
	}
	rows := make([]int64, c.GlobalBatchSize)
	for i := range rows {
		sample, err := f.set.Sample(r.at.ConsumedTrain - int64(c.GlobalBatchSize) + int64(i))
		if err != nil {
			return err
		}
		rows[i] = sample.Row
	}
	a, err := s.answered(ctx, r, s.set, list, rows)
	if err != nil {
		return err
	}
	a.Generation, s.answers = generation, a
	a.weigh(&s.options)
	if s.options.Beta == 0 {
		return nil
	}
	return s.refer(r, f, batch)
}

// asked is an answer to be sampled: to which row, its index among the answers of all ranks, and the number by
// which its tokens are drawn.
type asked struct {
	row    int64
	index  int
	number uint32
}

// answered has this rank's answers sampled, makes them known to all ranks, and has them rewarded. A command that
// rewards ends where the run is asked to stop. rows are those of
// all answers by their index; -1: that one is not asked for.
func (s *sampling) answered(ctx context.Context, r *Run, set *sft.Prompts, list []asked, rows []int64) (*answers, error) {
	own, err := s.continued(r, set, list)
	if err != nil {
		return nil, err
	}
	a := &answers{}
	if err := a.gather(r, len(rows), own, list, s.ends); err != nil {
		return nil, err
	}
	return a, s.reward(ctx, r, a, set, rows)
}

// continued are this rank's answers. The weights that sample are those of the coming step.
func (s *sampling) continued(r *Run, set *sft.Prompts, list []asked) ([]inference.Continued, error) {
	release, err := r.Engine.Optimizer.Gather()
	if err != nil {
		return nil, err
	}
	defer release()
	c := &r.Config
	g := &inference.Generator{Device: r.device, Stages: r.Engine.Stages, DType: r.Engine.DType, Vocab: c.Model.VocabSize, MaxContext: c.SeqLength,
		Hidden: int64(c.Model.HiddenSize), LossColumns: c.Model.PaddedVocabSize,
		HeadRanks: r.rank.Sizes.TP, Sharers: r.rank.Groups[topology.Model]}
	if stages := r.rank.Groups[topology.PP]; stages.Size() > 1 {
		g.Pipeline = stages
	}
	// The stages divide by the temperature.
	draw := inference.Sampling{Temperature: 1, TopK: c.Tuning.Policy.TopK, TopP: c.Tuning.Policy.TopP, Seed: uint64(c.Seed)}
	var requests []*inference.Request
	var lengths []int
	for _, one := range list {
		prompt := set.Rows[one.row].IDs
		q := &inference.Request{Prompt: prompt, Sampling: draw, MaxNew: min(s.options.MaxTokens, c.SeqLength-len(prompt)), Ends: s.ends, KeepEnd: true}
		q.Number = one.number
		requests, lengths = append(requests, q), append(lengths, len(prompt)+q.MaxNew)
	}
	limits := inference.BatcherConfig{Sequences: mostAtOnce, Blocks: inference.BlocksFor(lengths, mostAtOnce), Tokens: 512, Queue: len(requests)}
	return g.Continue(context.Background(), limits, requests, func() { r.rank.Enter(health.Eval, r.Engine.Iteration) })
}

// gather gives every rank the n answers of all.
func (a *answers) gather(r *Run, n int, own []inference.Continued, list []asked, ends []int32) error {
	lengths := make([]float64, n)
	for i, one := range own {
		lengths[list[i].index] = float64(len(one.IDs))
	}
	lengths, err := r.sum(lengths)
	if err != nil {
		return err
	}
	at, total := make([]int, n), 0
	for i, l := range lengths {
		at[i], total = total, total+int(l)
	}
	flat := make([]float64, 2*total) // ids, then log-probabilities
	for i, one := range own {
		for k, id := range one.IDs {
			flat[at[list[i].index]+k], flat[total+at[list[i].index]+k] = float64(id), one.LogProbs[k]
		}
	}
	if flat, err = r.sum(flat); err != nil {
		return err
	}
	for i := range n {
		ids, logps := make([]int32, int(lengths[i])), make([]float32, int(lengths[i]))
		for k := range ids {
			ids[k], logps[k] = int32(flat[at[i]+k]), float32(flat[total+at[i]+k])
		}
		a.IDs, a.LogPs = append(a.IDs, ids), append(a.LogPs, logps)
		a.Ended = append(a.Ended, len(ids) > 0 && slices.Contains(ends, ids[len(ids)-1]))
	}
	return nil
}

// reward has the first rank judge the answers, and sends the others the result, or errStopped if it was asked to stop.
func (s *sampling) reward(ctx context.Context, r *Run, a *answers, set *sft.Prompts, rows []int64) error {
	n := len(rows)
	flat := make([]float64, n*len(s.rewards)+1) // the last one: the first rank was asked to stop
	if r.rank.First() {
		judged, indices := s.judged(r, a, set, rows)
		for i, reward := range s.rewards {
			list, err := reward.Of(ctx, judged)
			if err != nil && ctx.Err() != nil {
				flat[len(flat)-1] = 1
				break
			}
			if err != nil {
				return err
			}
			for k, x := range list {
				flat[i*n+indices[k]] = x
			}
		}
	}
	flat, err := r.sum(flat)
	if err != nil {
		return err
	}
	if flat[len(flat)-1] > 0 {
		return errStopped
	}
	for i := range s.rewards {
		a.Rewards = append(a.Rewards, flat[i*n:(i+1)*n:(i+1)*n])
	}
	return nil
}

// judged are the answers as rewards see them, and their indices.
func (s *sampling) judged(r *Run, a *answers, set *sft.Prompts, rows []int64) (list []policy.Sampled, indices []int) {
	for i, ids := range a.IDs {
		if rows[i] < 0 {
			continue
		}
		if a.Ended[i] {
			ids = ids[:len(ids)-1]
		}
		row := &set.Rows[rows[i]]
		list, indices = append(list, policy.Sampled{Prompt: row.Text, Completion: r.Tokenizer.Decode(ids), Answer: row.Answer, Fields: row.Fields}), append(indices, i)
	}
	return list, indices
}

// refer finds the log-probabilities of the answers without the adapter.
func (s *sampling) refer(r *Run, f *Feed, batch []*engine.Micro) error {
	s.lay(f, batch)
	a := s.answers
	var mine []float64
	at := make([]int, len(a.IDs))
	for i, ids := range a.IDs {
		at[i] = len(mine)
		mine = append(mine, make([]float64, len(ids))...)
	}
	s.collect = func(index int, logps []float64) {
		if r.rank.Coordinates.TP == 0 { // others have seen the same
			copy(mine[at[index]:], logps)
		}
	}
	r.Engine.Bare = true
	defer func() { s.collect, r.Engine.Bare = nil, false }()
	if err := r.Engine.Peek(batch, engine.Observer{}); err != nil {
		return err
	}
	all, err := r.sum(mine)
	if err != nil {
		return err
	}
	for i, ids := range a.IDs {
		a.Reference = append(a.Reference, all[at[i]:at[i]+len(ids):at[i]+len(ids)])
	}
	return nil
}

// exact refuses a first step whose log-probabilities are not those that the answers were sampled with.
func (s *sampling) exact(apart float64) error {
	if !s.fresh || apart == 0 && !math.IsNaN(apart) {
		return nil
	}
	return exitcode.Errorf(exitcode.Internal, "the log-probability of a token differs by %g between the step and the sampling before it, although the weights are the same and the two must be equal bit for bit; report this, and include the command line", apart)
}
