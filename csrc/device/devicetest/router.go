package devicetest

import (
	"fmt"
	"math"

	"monotron/csrc/device"
)

// routerShape: tokens, experts, and the choices of a token.
type routerShape struct{ tokens, experts, k int64 }

func (s routerShape) String() string {
	return fmt.Sprintf("%dx%d top %d", s.tokens, s.experts, s.k)
}

var routerShapes = []routerShape{{1, 1, 1}, {0, 4, 2}, {3, 4, 2}, {17, 5, 1}, {65, 8, 8}, {33, 128, 8}, {300, 67, 3}, {700, 24, 4}}

var routerScoreNames = map[device.RouterScore]string{device.SoftmaxOfChosen: "softmax of chosen", device.SoftmaxOfAll: "softmax of all",
	device.SigmoidScore: "sigmoid", device.SqrtSoftplusScore: "sqrt softplus"}

const routerScores = device.SqrtSoftplusScore + 1

// routerOptions: the rule, and what is chosen by.
type routerOptions struct {
	rule       device.RouterRule
	bias, keys bool
	strided    bool
	logits     string // "ties": few values; "nan": a row of them; else noise
}

func (o routerOptions) String() string {
	s := routerScoreNames[o.rule.Score]
	if o.rule.Groups > 0 {
		s += fmt.Sprintf(" %d of %d groups", o.rule.GroupTopK, o.rule.Groups)
	}
	for _, f := range []struct {
		on   bool
		name string
	}{{o.bias, "bias"}, {o.keys, "keys"}, {o.strided, "strided"}, {o.logits != "", o.logits}, {o.rule.Scaling != 1, "scaled"}} {
		if f.on {
			s += " " + f.name
		}
	}
	return s
}

func plainRule(score device.RouterScore) device.RouterRule {
	return device.RouterRule{Score: score, Scaling: 1}
}

func routerCases() []Case {
	var cases []Case
	for score := range routerScores {
		for _, d := range valueTypes {
			for _, s := range routerShapes {
				cases = append(cases, routerForwardCase(d, s, routerOptions{rule: plainRule(score)}), routerBackwardCase(d, s, routerOptions{rule: plainRule(score)}))
			}
			o := routerOptions{rule: device.RouterRule{Score: score, Groups: 4, GroupTopK: 2, GroupBest: 2, Scaling: 2.5}, bias: true, strided: true}
			cases = append(cases, routerForwardCase(d, routerShape{65, 32, 4}, o), routerBackwardCase(d, routerShape{65, 32, 4}, o),
				routerForwardCase(d, routerShape{65, 6, 2}, routerOptions{rule: plainRule(score), logits: "ties"}),
				routerForwardCase(d, routerShape{5, 6, 2}, routerOptions{rule: plainRule(score), logits: "nan"}),
				routerForwardCase(d, routerShape{65, 24, 4}, routerOptions{rule: plainRule(score), keys: true}))
		}
		cases = append(cases, routerForwardCase(device.F32, routerShape{65, 8, 6}, routerOptions{rule: device.RouterRule{Score: score, Groups: 8, GroupTopK: 6, GroupBest: 1, Scaling: 1}, bias: true}))
		cases = append(cases, routerForwardCase(device.F32, routerShape{65, 8, 3}, routerOptions{rule: device.RouterRule{Score: score, Groups: 4, GroupTopK: 2, GroupBest: 1, Scaling: 1}}))
		cases = append(cases, balanceCases(score)...)
	}
	return append(append(cases, routerZCases()...), choiceCases()...)
}

// logits are [tokens, experts], with a gap behind each row where they are strided.
func (e *Env) logits(d device.DType, s routerShape, o routerOptions) device.Tensor {
	pad := int64(0)
	if o.strided {
		pad = 3
	}
	x := e.Make("logits", d, func(i int) float64 {
		switch {
		case o.logits == "ties":
			return float64(e.below(3))
		case o.logits == "nan" && int64(i)/s.experts == 2:
			return math.NaN()
		}
		return 2 * e.unit()
	}, s.tokens, s.experts+pad)
	return narrow(x, pad)
}

// Choices must be the oracle's; weights are functions of numbers up to 5.
func routerForwardCase(d device.DType, s routerShape, o routerOptions) Case {
	setup := func(e *Env) func() {
		a := device.RouterForwardArgs{Logits: e.logits(d, s, o), Rule: o.rule}
		if o.bias {
			a.Bias = e.Scaled("bias", device.F32, 0, 0.2, s.experts)
		}
		if o.keys {
			a.Keys = e.In("keys", device.F32, s.tokens, s.experts)
		}
		a.Weights, a.Experts = e.Out("Weights", tol(device.F32, s.k, 1), device.F32, s.tokens, s.k), e.Out("Experts", exact, device.I32, s.tokens, s.k)
		return func() { e.Dev.RouterForward(a) }
	}
	return Case{device.OpRouterForward, fmt.Sprintf("%s %s %s", d, s, o), setup, Work{Bytes: float64(s.tokens * (s.experts*d.Size() + 8*s.k))}}
}

// choices are k different experts for each token.
func (e *Env) choices(s routerShape) device.Tensor {
	first := int64(0)
	return e.Make("Experts", device.I32, func(i int) float64 {
		if int64(i)%s.k == 0 {
			first = e.below(s.experts)
		}
		return float64((first + int64(i)%s.k) % s.experts)
	}, s.tokens, s.k)
}

func routerBackwardCase(d device.DType, s routerShape, o routerOptions) Case {
	setup := func(e *Env) func() {
		a := device.RouterBackwardArgs{Logits: e.logits(d, s, o), Rule: o.rule, Experts: e.choices(s), DWeights: e.In("DWeights", device.F32, s.tokens, s.k)}
		a.DLogits = e.Out("DLogits", tol(device.F32, s.k, 3), device.F32, s.tokens, s.experts)
		return func() { e.Dev.RouterBackward(a) }
	}
	return Case{device.OpRouterBackward, fmt.Sprintf("%s %s %s", d, s, o), setup, Work{Bytes: float64(s.tokens * (s.experts*(d.Size()+4) + 8*s.k))}}
}

func balanceCases(score device.RouterScore) []Case {
	var cases []Case
	for _, d := range valueTypes {
		for _, s := range routerShapes {
			cases = append(cases, balanceCase(d, s, score, 1), balanceGradientCase(d, s, score, 1))
		}
		for _, samples := range []int64{2, 6, 300} {
			s := routerShape{600, 13, 2}
			cases = append(cases, balanceCase(d, s, score, samples), balanceGradientCase(d, s, score, samples))
		}
	}
	return cases
}

func balanceName(d device.DType, s routerShape, score device.RouterScore, samples int64) string {
	return fmt.Sprintf("%s %s %s of %d samples", d, s, routerScoreNames[score], samples)
}

// Sums of a sample's tokens, none above its number of them.
func balanceCase(d device.DType, s routerShape, score device.RouterScore, samples int64) Case {
	setup := func(e *Env) func() {
		a := device.RouterBalanceArgs{Logits: e.logits(d, s, routerOptions{}), Samples: samples, Score: score, K: int32(s.k)}
		a.Probs, a.Counts = e.Out("Probs", tol(device.F32, s.tokens/samples, 1), device.F32, samples, s.experts), e.Out("Counts", exact, device.F32, samples, s.experts)
		return func() { e.Dev.RouterBalance(a) }
	}
	return Case{device.OpRouterBalance, balanceName(d, s, score, samples), setup, Work{Bytes: float64(s.tokens * s.experts * d.Size())}}
}

func balanceGradientCase(d device.DType, s routerShape, score device.RouterScore, samples int64) Case {
	setup := func(e *Env) func() {
		a := device.RouterBalanceArgs{Logits: e.logits(d, s, routerOptions{}), Samples: samples, Score: score, K: int32(s.k), Coefficient: 0.01,
			Scale: e.List("Scale", device.F32, 8)}
		a.Counts = e.Make("Counts", device.F32, func(int) float64 { return float64(e.below(50)) }, samples, s.experts)
		a.DLogits = e.Changes(e.In("DLogits", device.F32, s.tokens, s.experts), tol(device.F32, 1, 4))
		return func() { e.Dev.RouterBalance(a) }
	}
	return Case{device.OpRouterBalance, balanceName(d, s, score, samples) + " gradient", setup, Work{Bytes: float64(s.tokens * s.experts * (d.Size() + 8))}}
}

func routerZCases() []Case {
	var cases []Case
	for _, d := range valueTypes {
		for _, s := range routerShapes {
			cases = append(cases, routerZCase(d, s, false), routerZCase(d, s, true))
		}
	}
	return cases
}

// Squares are up to 5², gradients up to 5·0.08.
func routerZCase(d device.DType, s routerShape, gradient bool) Case {
	name := fmt.Sprintf("%s %dx%d", d, s.tokens, s.experts)
	if gradient {
		name += " gradient"
	}
	setup := func(e *Env) func() {
		a := device.RouterZArgs{Logits: e.logits(d, s, routerOptions{strided: true})}
		if gradient {
			a.Coefficient, a.Scale = 0.01, e.List("Scale", device.F32, 8)
			a.DLogits = e.Changes(e.In("DLogits", device.F32, s.tokens, s.experts), tol(device.F32, 1, 2))
		} else {
			a.Squares = e.Out("Squares", tol(device.F32, 1, 25), device.F32, s.tokens)
		}
		return func() { e.Dev.RouterZ(a) }
	}
	return Case{device.OpRouterZ, name, setup, Work{Bytes: float64(s.tokens * s.experts * d.Size())}}
}

// choiceCases: capacities, and keys by Sinkhorn.
func choiceCases() []Case {
	var cases []Case
	for _, s := range routerShapes {
		for _, capacity := range []int64{0, 1, 7, s.tokens} {
			if capacity != s.tokens || s.tokens > 7 {
				cases = append(cases, routerDropCase(s, capacity, false, false), routerDropCase(s, capacity, true, false), routerDropCase(s, capacity, false, true))
			}
		}
		if s.tokens > 0 {
			for _, d := range valueTypes {
				cases = append(cases, sinkhornCase(d, s))
			}
		}
	}
	return cases
}

func routerDropCase(s routerShape, capacity int64, byPosition, ties bool) Case {
	name := fmt.Sprintf("%s capacity %d", s, capacity)
	if byPosition {
		name += " by position"
	}
	if ties {
		name += " ties"
	}
	setup := func(e *Env) func() {
		a := device.RouterDropArgs{Experts: e.choices(s), Capacity: capacity, NumExperts: s.experts, ByPosition: flag(byPosition)}
		a.Weights = e.Make("Weights", device.F32, func(int) float64 {
			if ties {
				return float64(e.below(3))
			}
			return e.unit()
		}, s.tokens, s.k)
		a.Kept = e.Out("Kept", exact, device.I32, s.tokens, s.k)
		return func() { e.Dev.RouterDrop(a) }
	}
	return Case{device.OpRouterDrop, name, setup, Work{Bytes: float64(12 * s.tokens * s.k)}}
}

func sinkhornCase(d device.DType, s routerShape) Case {
	setup := func(e *Env) func() {
		logits := e.logits(d, s, routerOptions{strided: true})
		keys := e.Out("Keys", tol(device.F32, 1, 0), device.F32, s.tokens, s.experts)
		return func() { e.Dev.RouterSinkhorn(keys, logits) }
	}
	return Case{device.OpRouterSinkhorn, fmt.Sprintf("%s %dx%d", d, s.tokens, s.experts), setup, Work{Bytes: float64(s.tokens * s.experts * (d.Size() + 4))}}
}
