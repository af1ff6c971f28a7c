package training

import (
	"math"

	"monotron/megatron/policy"
	"monotron/megatron/telemetry"
)

// values are what a step's answers tell, under TRL's names. All ranks call it together.
func (s *sampling) values(r *Run) (list []telemetry.Value, err error) {
	if r.device.Counts() {
		return nil, nil
	}
	t := &s.tally
	rows, err := r.log.gather([]float64{t.answers, t.tokens, t.low, t.high, t.kl, t.apart, t.ratio, t.mostApart, t.leastRatio, t.mostRatio, t.leastLow, t.mostHigh})
	if err != nil {
		return nil, err
	}
	all := newSampledTally()
	for _, row := range rows {
		all.join(row)
	}
	if err := s.exact(all.mostApart); err != nil {
		return nil, err
	}
	return append(s.answers.values(s.rewards), all.values(&s.options)...), nil
}

// join takes another rank's tally.
func (t *sampledTally) join(row []float64) {
	for i, to := range []*float64{&t.answers, &t.tokens, &t.low, &t.high, &t.kl, &t.apart, &t.ratio} {
		*to += row[i]
	}
	t.mostApart = math.Max(t.mostApart, row[7])
	t.leastRatio, t.mostRatio = math.Min(t.leastRatio, row[8]), math.Max(t.mostRatio, row[9])
	t.leastLow, t.mostHigh = math.Min(t.leastLow, row[10]), math.Max(t.mostHigh, row[11])
}

// values are those of probabilities.
func (t *sampledTally) values(o *policy.Options) (list []telemetry.Value) {
	add := func(name string, value float64) { list = append(list, telemetry.Value{Name: name, Value: value}) }
	tokens, clipped := math.Max(1, t.tokens), math.Max(1, t.tokens)
	if o.Sequences {
		clipped = math.Max(1, t.answers)
	}
	if o.Beta > 0 {
		add("kl", t.kl/tokens)
	}
	add("clip_ratio/low_mean", t.low/clipped)
	add("clip_ratio/low_min", t.leastLow)
	add("clip_ratio/high_mean", t.high/clipped)
	add("clip_ratio/high_max", t.mostHigh)
	add("clip_ratio/region_mean", (t.low+t.high)/clipped)
	add("sampling/sampling_logp_difference/mean", t.apart/tokens)
	add("sampling/sampling_logp_difference/max", t.mostApart)
	add("sampling/importance_sampling_ratio/min", t.leastRatio)
	add("sampling/importance_sampling_ratio/mean", t.ratio/tokens)
	add("sampling/importance_sampling_ratio/max", t.mostRatio)
	return list
}

// values are those of the answers themselves.
func (a *answers) values(rewards []policy.Reward) (list []telemetry.Value) {
	add := func(name string, value float64) { list = append(list, telemetry.Value{Name: name, Value: value}) }
	// Names are TRL's.
	sums := a.sums()
	add("reward", mean(sums))
	add("reward_std", policy.Deviation(sums))
	add("frac_reward_zero_std", a.same)
	for i, r := range rewards {
		add("rewards/"+r.Name()+"/mean", mean(a.Rewards[i]))
		add("rewards/"+r.Name()+"/std", policy.Deviation(a.Rewards[i]))
	}
	// Lengths of all answers, and of those that ended by themselves.
	var all, ended []float64
	for i, ids := range a.IDs {
		all = append(all, float64(len(ids)))
		if a.Ended[i] {
			ended = append(ended, float64(len(ids)))
		}
	}
	clipped := 1 - float64(len(ended))/float64(len(all))
	if len(ended) == 0 {
		ended = []float64{0}
	}
	lengths := func(list []float64, kind string) {
		least, most := bounds(list)
		add("completions/mean_"+kind, mean(list))
		add("completions/min_"+kind, least)
		add("completions/max_"+kind, most)
	}
	lengths(all, "length")
	lengths(ended, "terminated_length")
	add("completions/clipped_ratio", clipped)
	return list
}

func mean(list []float64) (sum float64) {
	for _, x := range list {
		sum += x
	}
	return sum / math.Max(1, float64(len(list)))
}

func bounds(list []float64) (least, most float64) {
	least, most = math.Inf(1), math.Inf(-1)
	for _, x := range list {
		least, most = math.Min(least, x), math.Max(most, x)
	}
	return least, most
}
