// Package policy has the arithmetic of GRPO: rewards of answers, their advantages within groups, and
// the losses of tokens with their slopes.
//
// Names, formulas and defaults are TRL 1.16's; docs/finetuning.md explains the method. reward.go
// judges answers in the program, command.go by an external command.
package policy

import "math"

// GRPO is the method's name, a value of --tuning.
const GRPO = "grpo"

// Losses: how the terms of a batch's tokens become one number.
const (
	DAPO   = "dapo"    // sum over the tokens of all answers / their number
	Mean   = "grpo"    // mean over answers of the mean over their tokens
	DrGRPO = "dr_grpo" // sum over the tokens of all answers / (answers · most tokens that one may have)
)

// Scales of advantages: what a reward's distance from the mean of its group is divided by.
const (
	ByGroup  = "group" // the deviation of its group
	ByBatch  = "batch" // that of the batch
	Unscaled = "none"
)

// Options are the numbers in the formulas.
type Options struct {
	Group       int     // answers to each prompt, at least 2
	Iterations  int     // steps that learn from the same answers
	Low, High   float64 // a ratio counts between 1−Low and 1+High
	Beta        float64 // weight of the distance from the reference; 0: there is none
	Loss        string
	Scale       string
	Sequences   bool    // a ratio is that of the answer, the geometric mean over its tokens
	Temperature float64 // of sampling
	MaxTokens   int     // of an answer
}

// leastDeviation is added to deviations.
const leastDeviation = 1e-4

// Advantages are, for rewards group by group, their distances from the mean of their group, divided by
// the deviation (n−1 below the line) plus 1e-4 that scale names. same is the share of rewards whose
// deviation is 0: there nothing is learned.
func Advantages(rewards []float64, group int, scale string) (list []float64, same float64) {
	list = make([]float64, len(rewards))
	_, batchDeviation := meanAndDeviation(rewards)
	for from := 0; from < len(rewards); from += group {
		own := rewards[from : from+group]
		mean, deviation := meanAndDeviation(own)
		if scale == ByBatch {
			deviation = batchDeviation
		}
		for i, r := range own {
			list[from+i] = r - mean
			if scale != Unscaled {
				list[from+i] /= deviation + leastDeviation
			}
		}
		if deviation <= 1e-8 {
			same += float64(len(own))
		}
	}
	return list, same / float64(max(1, len(rewards)))
}

// Deviation is the standard deviation of numbers, n−1 below the line; 0 of fewer than two.
func Deviation(list []float64) float64 {
	_, d := meanAndDeviation(list)
	return d
}

func meanAndDeviation(list []float64) (mean, deviation float64) {
	for _, x := range list {
		mean += x
	}
	mean /= math.Max(1, float64(len(list)))
	for _, x := range list {
		deviation += (x - mean) * (x - mean)
	}
	return mean, math.Sqrt(deviation / math.Max(1, float64(len(list)-1)))
}

// Answer is what is known of an answer's tokens.
type Answer struct {
	Advantage float64
	Policy    []float64 // log-probabilities now
	Sampled   []float64 // when they were sampled
	Reference []float64 // under the reference; nil where Beta is 0
}

// Terms are an answer's part of the loss.
type Terms struct {
	Loss      float64    // Σ over its tokens, by the weight of Weight
	Slopes    []float64  // by each token's log-probability
	Low, High float64    // ratios that were clipped from below and above: of tokens, or with Sequences the one
	KL        float64    // Σ over its tokens
	Ratio     [2]float64 // least and most
}

// Weight is what an answer of n tokens counts in the number that a batch's losses are divided by, and
// what each token's term is multiplied by.
func (o *Options) Weight(n int) (count, each float64) {
	switch o.Loss {
	case Mean:
		return 1, 1 / math.Max(1, float64(n))
	case DrGRPO:
		return float64(o.MaxTokens), 1
	}
	return float64(n), 1
}

// Of is the loss of an answer: of each token −min(ρA, clip(ρ)A) + β·kl, ρ the ratio of the probabilities
// now and when it was sampled, kl = e^x − x − 1 of x = log reference − log policy.
func (o *Options) Of(a *Answer) (t Terms) {
	n := len(a.Policy)
	_, each := o.Weight(n)
	t.Slopes, t.Ratio = make([]float64, n), [2]float64{math.Inf(1), math.Inf(-1)}
	meanRatio := 0.0
	for i := range a.Policy {
		meanRatio += (a.Policy[i] - a.Sampled[i]) / float64(n)
	}
	var slope float64 // of all tokens, by the answer's log ratio
	share := 1.0      // of a clipped ratio that a token stands for
	if o.Sequences {
		share /= float64(n)
	}
	for i := range a.Policy {
		log := a.Policy[i] - a.Sampled[i]
		if o.Sequences {
			log = meanRatio
		}
		ratio := math.Exp(log)
		t.Ratio = [2]float64{math.Min(t.Ratio[0], ratio), math.Max(t.Ratio[1], ratio)}
		loss, bySlope := o.clipped(ratio, a.Advantage)
		t.Loss += each * loss
		if o.Sequences {
			slope += each * bySlope / float64(n)
		} else {
			t.Slopes[i] += each * bySlope
		}
		if o.Beta > 0 {
			x := a.Reference[i] - a.Policy[i]
			kl := math.Expm1(x) - x
			t.KL += kl
			t.Loss += each * o.Beta * kl
			t.Slopes[i] -= each * o.Beta * math.Expm1(x)
		}
		if ratio < 1-o.Low && a.Advantage < 0 {
			t.Low += share
		}
		if ratio > 1+o.High && a.Advantage > 0 {
			t.High += share
		}
	}
	for i := range t.Slopes {
		t.Slopes[i] += slope
	}
	return t
}

// clipped is −min(ρA, clip(ρ)A), and its slope by log ρ.
func (o *Options) clipped(ratio, advantage float64) (loss, slope float64) {
	bound := math.Min(math.Max(ratio, 1-o.Low), 1+o.High)
	if bound*advantage < ratio*advantage {
		return -bound * advantage, 0
	}
	return -ratio * advantage, -ratio * advantage
}
