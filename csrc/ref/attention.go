package ref

import (
	"math"

	"monotron/csrc/device"
)

// AttentionForward is softmax(scale·QKᵀ + ALiBi)·V; a tile is one group of one
// sample, whose heads share keys and values.
func (b *backend) AttentionForward(a *device.AttentionForwardArgs) {
	m := newMask(&a.Drop)
	b.pool.Run(int64(a.Batch)*a.Q.Shape[1], func(_ int, tile int64) {
		g := newGroup(a, m, tile/a.Q.Shape[1], tile%a.Q.Shape[1])
		q, o := make([]float64, g.d), make([]float64, g.d)
		p := make([]float64, g.sk)
		for h := range a.Q.Shape[2] {
			for i := range g.sq {
				load(q, a.Q, g.at(a.Q, i, h))
				from, to := g.visible(i)
				lse := softmax(g.scores(p[from:to], q, i, h, from))
				g.drop(p[from:to], i, h, from)
				clear(o)
				for j := from; j < to; j++ {
					axpy(o, p[j], g.v[j*g.d:][:g.d])
				}
				store(a.O, g.at(a.O, i, h), o)
				setOne(a.LSE, g.row(i, h), lse)
			}
		}
	})
}

// AttentionMerge goes by w = 1/(1+e^(lse−part)), which is stable whichever is larger.
func (b *backend) AttentionMerge(a *device.AttentionMergeArgs) {
	batch, heads, sq, d := a.LSE.Shape[0], a.LSE.Shape[1], a.LSE.Shape[2], a.O.Last()
	b.pool.Run(batch*heads, func(_ int, tile int64) {
		o, part := make([]float64, d), make([]float64, d)
		for i := range sq {
			at, row := tile*sq+i, ((i*batch+tile/heads)*heads+tile%heads)*d
			lse, other := one(a.LSE, at), one(a.PartLSE, at)
			if math.IsInf(other, -1) {
				continue
			}
			load(o, a.O, row)
			load(part, a.Part, row)
			w := 1 / (1 + math.Exp(lse-other))
			for c := range o {
				o[c] += w * (part[c] - o[c])
			}
			store(a.O, row, o)
			top := math.Max(lse, other)
			setOne(a.LSE, at, top+math.Log(math.Exp(lse-top)+math.Exp(other-top)))
		}
	})
}

// group is one sample's keys and values of one group of heads.
type group struct {
	*device.AttentionForwardArgs
	mask          mask
	sample, group int64
	sq, sk, d     int64
	k, v          []float64 // [sk, d]
	slopes        []float64
	docStart      []int32 // of the sample's queries; nil: 0
	ahead         int64   // how many keys lie before the first query's own
}

func newGroup(a *device.AttentionForwardArgs, m mask, sample, index int64) *group {
	b := int64(a.Batch)
	g := &group{AttentionForwardArgs: a, mask: m, sample: sample, group: index, sq: a.Q.Shape[0] / b, sk: a.K.Shape[0] / b, d: a.Q.Last(), slopes: vector(a.Slopes)}
	g.ahead = int64(a.QOffset - a.KOffset)
	if a.DocStart.Given() {
		g.docStart = ids(a.DocStart.At(sample))
	}
	end := min(g.sk, g.ahead+g.sq) // keys beyond are seen by none
	g.k, g.v = make([]float64, end*g.d), make([]float64, end*g.d)
	for j := range end {
		load(g.k[j*g.d:][:g.d], a.K, g.at(a.K, j, 0))
		load(g.v[j*g.d:][:g.d], a.V, g.at(a.V, j, 0))
	}
	return g
}

// at is the offset of head h of the group at row i of the sample, in a tensor
// [s·b, groups, heads per group, d].
func (g *group) at(t device.Tensor, i, h int64) int64 {
	return (i*int64(g.Batch)+g.sample)*t.Stride[0] + g.group*t.Stride[1] + h*t.Stride[2]
}

// head is the number of head h of the group among this call's heads.
func (g *group) head(h int64) int64 { return g.group*g.Q.Shape[2] + h }

// row is the index in LSE [b, heads, sq].
func (g *group) row(i, h int64) int64 {
	return (g.sample*g.Q.Shape[1]*g.Q.Shape[2]+g.head(h))*g.sq + i
}

// visible is the keys from..to-1 that query i sees.
func (g *group) visible(i int64) (from, to int64) {
	position := g.ahead + i
	if g.docStart != nil {
		from = int64(g.docStart[i]) - int64(g.KOffset)
	}
	if g.Window >= 0 {
		from = max(from, position-int64(g.Window))
	}
	if chunk := int64(g.Chunk); chunk > 0 {
		from = max(from, (position+int64(g.KOffset))/chunk*chunk-int64(g.KOffset))
	}
	to = min(g.sk, position+1)
	return min(max(0, from), to), to
}

// scores are rule(scale·q·k) + slope·(k−q) of the keys from `from` on.
func (g *group) scores(s, q []float64, i, h, from int64) []float64 {
	for j := range s {
		key := from + int64(j)
		s[j] = ruled(g.Rule, g.Cap, float64(g.Scale)*dot(q, g.k[key*g.d:][:g.d]))
		if g.slopes != nil {
			s[j] += bias(g.Slopes, g.slopes, g.head(h), key+int64(g.KOffset), key-g.ahead-i)
		}
	}
	return s
}

// ruled is a score after its rule.
func ruled(rule device.ScoreRule, limit float32, score float64) float64 {
	if rule == device.CappedScores {
		return float64(limit) * math.Tanh(score/float64(limit))
	}
	return score
}

// bias is what is added to a head's score of a key at a position, so far behind the query.
func bias(slopes device.Tensor, values []float64, head, position, behind int64) float64 {
	if slopes.Rank == 2 {
		return values[head*slopes.Shape[1]+position]
	}
	return values[head] * float64(behind)
}

// drop multiplies probabilities by their mask; a key is the mask's channel.
func (g *group) drop(p []float64, i, h, from int64) {
	if g.mask.on {
		g.mask.apply(p, int64(g.Drop.Position)+i, g.mask.samples[g.sample], int64(g.Drop.Channel)+g.head(h), int64(g.KOffset)+from)
	}
}

// softmax in place; returns the log of the denominator, of no scores −inf.
func softmax(s []float64) (lse float64) {
	top := math.Inf(-1)
	for _, x := range s {
		top = math.Max(top, x)
	}
	if len(s) == 0 {
		return top
	}
	total := 0.0
	for j := range s {
		s[j] = math.Exp(s[j] - top)
		total += s[j]
	}
	for j := range s {
		s[j] /= total
	}
	return top + math.Log(total)
}

func dot(x, y []float64) float64 {
	s := 0.0
	y = y[:len(x)]
	for i := range x {
		s += x[i] * y[i]
	}
	return s
}

// axpy: y += a·x.
func axpy(y []float64, a float64, x []float64) {
	x = x[:len(y)]
	for i := range y {
		y[i] += a * x[i]
	}
}

func times(x []float64, by float64) {
	for i := range x {
		x[i] *= by
	}
}
