package training

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

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
	return sets, nil
}

// mostAtOnce is how many answers a rank samples beside each other.
const mostAtOnce = 64

// sample has answers sampled to the prompts of a batch, and rewards them.
func (s *sampling) sample(r *Run, f *Feed, batch []*engine.Micro, generation int64) error {
	began := time.Now()
	own, places, err := s.continued(r, batch, generation)
	if err != nil {
		return err
	}
	a := &answers{Generation: generation}
	if err := a.gather(r, own, places, s.ends); err != nil {
		return err
	}
	a.took = time.Since(began)
	s.answers = a
	if err := s.reward(r, f); err != nil {
		return err
	}
	a.weigh(&s.options)
	if s.options.Beta == 0 {
		return nil
	}
	return s.refer(r, f, batch)
}

// continued are the answers to the prompts of this rank's micro-batches, with their places in the global
// batch. The weights that sample are those of the coming step.
func (s *sampling) continued(r *Run, batch []*engine.Micro, generation int64) (own []inference.Continued, places []int, err error) {
	release, err := r.Engine.Optimizer.Whole()
	if err != nil {
		return nil, nil, err
	}
	defer release()
	c := &r.Config
	g := &inference.Generator{Device: r.device, Stages: r.Engine.Stages, DType: r.Engine.DType, Vocab: c.Model.VocabSize, MaxContext: c.SeqLength,
		Hidden: int64(c.Model.HiddenSize), AsLosses: true}
	if stages := r.rank.Groups[topology.PP]; stages.Size() > 1 {
		g.Pipeline = stages
	}
	draw := inference.Sampling{Temperature: 1, TopK: c.Tuning.Policy.TopK, TopP: c.Tuning.Policy.TopP, Seed: uint64(c.Seed)} // the stages divide by the temperature
	var requests []*inference.Request
	var lengths []int
	for _, m := range batch {
		for k, row := range m.Rows {
			prompt := s.set.Rows[row].IDs
			q := &inference.Request{Prompt: prompt, Sampling: draw, MaxNew: min(s.options.MaxTokens, c.SeqLength-len(prompt)), Ends: s.ends, KeepEnd: true}
			q.Number = uint32(generation*int64(c.GlobalBatchSize) + int64(m.Samples[k]))
			requests, places, lengths = append(requests, q), append(places, int(m.Samples[k])), append(lengths, len(prompt)+q.MaxNew)
		}
	}
	limits := inference.BatcherConfig{Sequences: mostAtOnce, Blocks: inference.BlocksFor(lengths, mostAtOnce), Tokens: 512, Queue: len(requests)}
	own, err = g.Continue(context.Background(), limits, requests, func() { r.rank.Enter(health.Eval, r.Engine.Iteration) })
	return own, places, err
}

// gather gives every rank the answers of all.
func (a *answers) gather(r *Run, own []inference.Continued, places []int, ends []int32) error {
	n := r.Config.GlobalBatchSize
	lengths := make([]float64, n)
	for i, one := range own {
		lengths[places[i]] = float64(len(one.IDs))
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
			flat[at[places[i]]+k], flat[total+at[places[i]]+k] = float64(id), one.LogProbs[k]
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

// reward has the first rank judge the answers, and tells the others.
func (s *sampling) reward(r *Run, f *Feed) error {
	a := s.answers
	n := len(a.IDs)
	flat := make([]float64, n*len(s.rewards))
	if r.rank.First() {
		judged, err := s.judged(r, f)
		if err != nil {
			return err
		}
		for i, reward := range s.rewards {
			list, err := reward.Of(context.Background(), judged)
			if err != nil {
				return err
			}
			copy(flat[i*n:], list)
		}
	}
	flat, err := r.sum(flat)
	if err != nil {
		return err
	}
	a.Rewards = nil
	for i := range s.rewards {
		a.Rewards = append(a.Rewards, flat[i*n:(i+1)*n:(i+1)*n])
	}
	return nil
}

// judged are the answers as rewards see them.
func (s *sampling) judged(r *Run, f *Feed) (list []policy.Sampled, err error) {
	first := r.at.ConsumedTrain - int64(r.Config.GlobalBatchSize)
	for i, ids := range s.answers.IDs {
		sample, err := f.set.Sample(first + int64(i))
		if err != nil {
			return nil, err
		}
		if s.answers.Ended[i] {
			ids = ids[:len(ids)-1]
		}
		row := &s.set.Rows[sample.Row]
		list = append(list, policy.Sampled{Prompt: row.Text, Completion: r.Tokenizer.Decode(ids), Answer: row.Answer, Fields: row.Fields})
		if _, exact := s.rewards[0].(policy.Exact); exact && row.Answer == nil {
			return nil, exitcode.Errorf(exitcode.BadData, "%s:%d: field \"answer\": missing; --reward exact compares with it", r.Config.Tuning.Data, row.Line)
		}
	}
	return list, nil
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
	s.collect = func(place int, logps []float64) { copy(mine[at[place]:], logps) }
	r.Engine.Bare = true
	defer func() { s.collect, r.Engine.Bare = nil, false }()
	if err := r.Engine.Peek(batch, engine.Look{}); err != nil {
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
	return exitcode.Errorf(exitcode.Internal, "the step and the sampling before it give a token log-probabilities that differ by %g; with the same weights they must be equal, bit for bit: report this with the command line", apart)
}
