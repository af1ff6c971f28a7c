package ref

import (
	"cmp"
	"math"
	"slices"

	"monotron/csrc/device"
)

// score is a router's score function: of logits to what is chosen by.
type score struct {
	of    func(x float64) float64 // nil: logits are chosen by
	slope func(x float64) float64
}

var routerScores = map[device.RouterScore]score{
	device.SoftmaxOfChosen:   {},
	device.SoftmaxOfAll:      {},
	device.SigmoidScore:      {sigmoid, func(x float64) float64 { return sigmoid(x) * sigmoid(-x) }},
	device.SqrtSoftplusScore: {func(x float64) float64 { return math.Sqrt(softplus(x)) }, func(x float64) float64 { return sigmoid(x) / (2 * math.Sqrt(softplus(x))) }},
}

func sigmoid(x float64) float64  { return 1 / (1 + math.Exp(-x)) }
func softplus(x float64) float64 { return math.Max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }

// tiny keeps sums of scores from being divided by zero (Megatron's 1e-20).
const tiny = 1e-20

func (b *backend) RouterForward(a *device.RouterForwardArgs) {
	experts, k := a.Logits.Last(), a.Weights.Last()
	chosen, bias := ids(a.Experts), vector(a.Bias)
	b.spread(a.Logits.Shape[0], each(experts), func(from, to int64) {
		x, keys, w := make([]float64, experts), make([]float64, experts), make([]float64, k)
		for r := from; r < to; r++ {
			loadRow(x, a.Logits, r)
			if a.Keys.Given() {
				loadRow(keys, a.Keys, r)
			} else {
				scores(keys, x, &a.Rule, bias != nil)
			}
			for i := range bias {
				keys[i] += bias[i]
			}
			onlyBestGroups(keys, &a.Rule)
			mine := chosen[r*k:][:k]
			best(mine, keys)
			weigh(w, x, mine, &a.Rule)
			store(a.Weights, r*k, w)
		}
	})
}

// scores sets the scores by which experts are chosen. A softmax over all experts keeps the
// order of the logits, so it is computed only where scores are added: in groups, or to a bias.
func scores(out, x []float64, rule *device.RouterRule, biased bool) {
	copy(out, x)
	if rule.Score == device.SoftmaxOfAll && (rule.Groups > 0 || biased) {
		softmaxTo(out, x)
	}
	if of := routerScores[rule.Score].of; of != nil {
		for i := range out {
			out[i] = of(x[i])
		}
	}
}

// best sets the numbers of the highest keys, highest first; ties by number.
func best(out []int32, keys []float64) {
	order := make([]int32, len(keys))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortStableFunc(order, func(i, j int32) int {
		switch {
		case keys[i] > keys[j]:
			return -1
		case keys[i] < keys[j]:
			return 1
		}
		return 0
	})
	copy(out, order)
}

// onlyBestGroups makes −∞ of keys outside the groups with the highest sums of their best
// GroupBest keys.
func onlyBestGroups(keys []float64, rule *device.RouterRule) {
	if rule.Groups == 0 {
		return
	}
	size, kept := len(keys)/int(rule.Groups), int(rule.GroupTopK)
	sums, top := make([]float64, rule.Groups), make([]int32, rule.GroupBest)
	for g := range sums {
		group := keys[g*size:][:size]
		best(top, group)
		for _, i := range top {
			sums[g] += group[i]
		}
	}
	winners := make([]int32, kept)
	best(winners, sums)
	for g := range sums {
		if !slices.Contains(winners, int32(g)) {
			for i := range size {
				keys[g*size+i] = math.Inf(-1)
			}
		}
	}
}

// weigh sets the weights of the chosen experts.
func weigh(w, x []float64, chosen []int32, rule *device.RouterRule) {
	// w: the scores of the chosen experts, by the rule.
	for j, e := range chosen {
		w[j] = x[e]
	}
	switch rule.Score {
	case device.SoftmaxOfChosen:
		softmaxTo(w, w)
	case device.SoftmaxOfAll:
		p := make([]float64, len(x))
		softmaxTo(p, x)
		for j, e := range chosen {
			w[j] = p[e]
		}
	default:
		// Sigmoid and the like: of several, each its share of the sum; of one, its score.
		total := tiny
		for j := range w {
			w[j] = routerScores[rule.Score].of(w[j])
			total += w[j]
		}
		for j := range w {
			if len(w) > 1 {
				w[j] /= total
			}
		}
	}
	for j := range w {
		w[j] *= float64(rule.Scaling)
	}
}

func softmaxTo(out, x []float64) {
	top, total := slices.Max(x), 0.0
	for i := range x {
		out[i] = math.Exp(x[i] - top)
		total += out[i]
	}
	for i := range out {
		out[i] /= total
	}
}

func (b *backend) RouterBackward(a *device.RouterBackwardArgs) {
	experts, k := a.Logits.Last(), a.Experts.Last()
	chosen := ids(a.Experts)
	b.spread(a.Logits.Shape[0], each(experts), func(from, to int64) {
		x, dx, dw := make([]float64, experts), make([]float64, experts), make([]float64, k)
		for r := from; r < to; r++ {
			loadRow(x, a.Logits, r)
			load(dw, a.DWeights, r*k)
			clear(dx)
			unweigh(dx, dw, x, chosen[r*k:][:k], &a.Rule)
			storeRow(a.DLogits, r, dx)
		}
	})
}

// unweigh sets the gradient of the logits from that of the weights, which is used up.
func unweigh(dx, dw, x []float64, chosen []int32, rule *device.RouterRule) {
	// The weights again, before scaling, and inner = Σ w·dw, which the gradient of any normalised weight has.
	for j := range dw {
		dw[j] *= float64(rule.Scaling)
	}
	w, plain := make([]float64, len(dw)), *rule
	plain.Scaling = 1
	weigh(w, x, chosen, &plain)
	inner := 0.0
	for j := range w {
		inner += w[j] * dw[j]
	}
	switch rule.Score {
	// dx_e = w_e·(dw_e - inner)
	case device.SoftmaxOfChosen:
		for j, e := range chosen {
			dx[e] += w[j] * (dw[j] - inner)
		}
	// The experts that were not chosen are in the denominator too: dx_i = p_i·(dw_i - inner), dw_i = 0 for them.
	case device.SoftmaxOfAll:
		p := make([]float64, len(x))
		softmaxTo(p, x)
		for i := range dx {
			dx[i] -= p[i] * inner
		}
		for j, e := range chosen {
			dx[e] += w[j] * dw[j]
		}
	// w_e = s_e/Σs: dx_e = (dw_e - inner)/Σs·s'(x_e); of a single expert w = s.
	default:
		s, total := routerScores[rule.Score], tiny
		for _, e := range chosen {
			total += s.of(x[e])
		}
		for j, e := range chosen {
			if len(w) > 1 {
				dx[e] += (dw[j] - inner) / total * s.slope(x[e])
			} else {
				dx[e] += dw[j] * s.slope(x[e])
			}
		}
	}
}

// RouterBalance sums by sample in row order; tiles are samples.
func (b *backend) RouterBalance(a *device.RouterBalanceArgs) {
	experts, rows := a.Logits.Last(), a.Logits.Shape[0]
	b.spread(a.Samples, 1, func(from, to int64) {
		x, p := make([]float64, experts), make([]float64, experts)
		top := make([]int32, a.K)
		for sample := from; sample < to; sample++ {
			// Forward: [experts] sums of a sample's probabilities and counts of its choices. Backward, where
			// DLogits is given: the loss is Coefficient·Scale·Σ counts·probs, so counts are the gradient of
			// each row's probabilities.
			probs, counts := make([]float64, experts), make([]float64, experts)
			if a.DLogits.Given() {
				load(counts, a.Counts, sample*experts)
				for i := range counts {
					counts[i] *= a.Coefficient * one(a.Scale, 0)
				}
			}
			for r := sample; r < rows; r += a.Samples {
				loadRow(x, a.Logits, r)
				shares(p, x, a.Score)
				if a.DLogits.Given() {
					unshare(x, p, counts, a.Score)
					addTo(a.DLogits, rowAt(a.DLogits, r), x)
					continue
				}
				// On a grid, sums of probabilities are exact in any order.
				best(top, p)
				for e := range p {
					if a.Bits > 0 {
						p[e] = onGrid(p[e], math.Ldexp(1, int(-a.Bits)))
					}
					probs[e] += p[e]
				}
				for _, e := range top {
					counts[e]++
				}
			}
			if !a.DLogits.Given() {
				store(a.Probs, sample*experts, probs)
				store(a.Counts, sample*experts, counts)
			}
		}
	})
}

// shares are an expert's part of a token: they add up to 1.
func shares(p, x []float64, s device.RouterScore) {
	of := routerScores[s].of
	if of == nil {
		softmaxTo(p, x)
		return
	}
	total := tiny
	for i := range x {
		p[i] = of(x[i])
		total += p[i]
	}
	for i := range p {
		p[i] /= total
	}
}

// unshare makes of logits x the gradient of Σ g·p.
func unshare(x, p, g []float64, s device.RouterScore) {
	inner := 0.0
	for i := range p {
		inner += p[i] * g[i]
	}
	f := routerScores[s]
	if f.of == nil {
		for i := range x {
			x[i] = p[i] * (g[i] - inner)
		}
		return
	}
	total := tiny
	for i := range x {
		total += f.of(x[i])
	}
	for i := range x {
		x[i] = (g[i] - inner) / total * f.slope(x[i])
	}
}

func (b *backend) RouterZ(a *device.RouterZArgs) {
	experts := a.Logits.Last()
	b.spread(a.Logits.Shape[0], each(experts), func(from, to int64) {
		x := make([]float64, experts)
		for r := from; r < to; r++ {
			loadRow(x, a.Logits, r)
			z := logSumExp(x)
			if a.Squares.Given() {
				setOne(a.Squares, r, z*z)
				continue
			}
			softmaxTo(x, x)
			for i := range x {
				x[i] *= 2 * z * a.Coefficient * one(a.Scale, 0)
			}
			addTo(a.DLogits, rowAt(a.DLogits, r), x)
		}
	})
}

func logSumExp(x []float64) float64 {
	top, total := slices.Max(x), 0.0
	for _, v := range x {
		total += math.Exp(v - top)
	}
	return top + math.Log(total)
}

func (b *backend) RouterDrop(a *device.RouterDropArgs) {
	experts, kept, weights := ids(a.Experts), ids(a.Kept), vector(a.Weights)
	copy(kept, experts)
	b.spread(a.NumExperts, 1, func(from, to int64) {
		for e := from; e < to; e++ {
			var mine []int // choices
			for i, x := range experts {
				if int64(x) == e {
					mine = append(mine, i)
				}
			}
			if a.ByPosition == 0 {
				slices.SortStableFunc(mine, func(i, j int) int { return cmp.Compare(weights[j], weights[i]) })
			}
			for _, i := range mine[min(int64(len(mine)), a.Capacity):] {
				kept[i] = -1
			}
		}
	})
}

func (*backend) RouterSinkhorn(a *device.RouterSinkhornArgs) {
	const tolerance, small = 1e-4, 1e-8
	t, n := a.Logits.Shape[0], a.Logits.Last()
	// cost = exp(logits) [tokens, experts]
	cost := make([]float64, t*n)
	for r := range t {
		loadRow(cost[r*n:][:n], a.Logits, r)
	}
	for i := range cost {
		cost[i] = math.Exp(cost[i])
	}
	// Alternating factors of rows and columns, until every token has 1/tokens and every expert 1/experts of the
	// sum; Megatron's tolerance and the order of its two steps.
	rows, columns := make([]float64, t), make([]float64, n)
	for i := range columns {
		columns[i] = 1
	}
	for change := math.Inf(1); change > tolerance; {
		sums := make([]float64, n)
		for r := range t {
			line, total := cost[r*n:][:n], 0.0
			for i, c := range columns {
				total += c * line[i]
			}
			rows[r] = 1 / float64(t) / (total + small)
			axpy(sums, rows[r], line)
		}
		change = 0
		for i := range columns {
			now := 1 / float64(n) / (sums[i] + small)
			change += math.Abs(now-columns[i]) / float64(n)
			columns[i] = now
		}
	}
	for r := range t {
		// Keys: the balanced shares, by which experts are chosen.
		line := cost[r*n:][:n]
		for i := range line {
			line[i] *= rows[r] * columns[i]
		}
		storeRow(a.Keys, r, line)
	}
}
