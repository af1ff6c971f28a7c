package model

import (
	"math/bits"

	"monotron/csrc/device"
	"monotron/megatron/spec"
	"monotron/mpu/comm"
)

// balance is one of a router's own losses on a micro-batch: coefficient · E/(k·T²) ·
// Σ over experts of n·Σ over tokens of p, with n tokens of T for the expert (Fedus et al.,
// arXiv 2101.03961, eq. 4 to 6).
type balance struct {
	counts      Tensor  // f32 [samples, experts]: n
	coefficient float64 // of Σ n·p, with E/(k·T²)
}

// sharing says over which ranks a balancing loss counts tokens.
type sharing struct {
	loss    AuxiliaryLoss
	group   *comm.Group // ranks that share the tokens; nil: this one has all
	samples int64       // that are counted separately
}

// balance adds this micro-batch's losses to the pass's.
func (r *router) balance(p *Pass, s *device.Scope, out *routed) error {
	if p.Auxiliary == nil {
		return nil
	}
	for i, kind := range r.e.Balancing {
		how, ok := r.sharing(p, kind)
		if !ok || r.e.AuxLossCoeff[i] == 0 {
			continue
		}
		b, err := r.count(p, s, out, how)
		if err != nil {
			return err
		}
		b.coefficient *= r.e.AuxLossCoeff[i]
		out.losses = append(out.losses, b)
	}
	if r.e.ZLossCoeff != 0 && !p.Again {
		r.addZ(p, out)
	}
	return nil
}

func (r *router) sharing(p *Pass, kind string) (sharing, bool) {
	switch kind {
	case spec.AuxLoss:
		return sharing{LoadBalancingLoss, r.tokens, 1}, true
	case spec.SeqAuxLoss:
		return sharing{SeqLoadBalancingLoss, r.tokens, p.Batch}, true
	case spec.GlobalAuxLoss:
		return sharing{GlobalLoadBalancingLoss, r.allTokens, 1}, true
	}
	return sharing{}, false
}

// count makes one loss's numbers of the rows here.
func (r *router) count(p *Pass, s *device.Scope, out *routed, how sharing) (b balance, err error) {
	tokens := float64(out.logits.Shape[0]/how.samples) * float64(size(how.group))
	if p.Auxiliary.Bits > 0 { // of a sample's loss, times its tokens: the same for any number of samples
		b.coefficient = float64(r.e.Num) / (float64(r.e.TopK) * tokens * tokens) / r.uses
		b.counts, err = r.exactCounts(p, s, out, how, b.coefficient)
		b.coefficient *= tokens
		return b, err
	}
	b.coefficient = float64(r.e.Num) / (float64(r.e.TopK) * tokens * tokens) / float64(how.samples) / r.uses
	if how.loss == GlobalLoadBalancingLoss { // of the mean over the micro-batches so far
		b.coefficient /= float64(p.Micro)
	}
	if b.counts, err = r.counts(p, s, out, how, b.coefficient); err != nil {
		return b, err
	}
	if how.loss == GlobalLoadBalancingLoss && r.e.GlobalExact { // the loss of all ranks is averaged once more
		b.coefficient *= float64(size(how.group)) / float64(size(r.tokens))
	}
	if p.Auxiliary.PerToken {
		b.coefficient *= p.Counted
	}
	return b, nil
}

// counts are the tokens of each expert that a loss counts, whose value the first forward pass
// reports. A second one finds the global loss's as the first left them: in a pipeline later
// micro-batches have been counted since.
func (r *router) counts(p *Pass, s *device.Scope, out *routed, how sharing, coefficient float64) (Tensor, error) {
	global := how.loss == GlobalLoadBalancingLoss
	if global && p.Again {
		return p.saved.soFar[r.layer], nil
	}
	if global {
		s = p.saved.bounds
	}
	tmp := p.D.Arena.Scope(device.Activations)
	defer tmp.Release()
	counts := s.Alloc(statsType(p), how.samples, int64(r.e.Num))
	probs := tmp.Like(counts)
	p.D.RouterBalance(device.RouterBalanceArgs{Probs: probs, Counts: counts, Logits: out.logits, Samples: how.samples, Score: r.rule.Score, K: int32(r.e.TopK)})
	if how.group != nil && how.group.Size() > 1 {
		if err := how.group.AllReduce(counts, comm.Sum).Wait(); err != nil {
			return counts, err
		}
	}
	if global {
		r.addSoFar(p, counts)
	}
	if !p.Again {
		r.addLoss(p, how.loss, probs, counts, coefficient)
	}
	return counts, nil
}

// exactCounts is counts of a loss that balances samples, whose value is a sum without an order: of
// probabilities on a grid a sample's sums, then of samples, which one of the ranks that share them adds.
func (r *router) exactCounts(p *Pass, s *device.Scope, out *routed, how sharing, coefficient float64) (Tensor, error) {
	tmp := p.D.Arena.Scope(device.Activations)
	defer tmp.Release()
	counts := s.Alloc(statsType(p), how.samples, int64(r.e.Num))
	exact, probs := tmp.Alloc(device.F64, counts.Dims()...), tmp.Like(counts)
	tokens := uint64(out.logits.Shape[0]/how.samples) * uint64(size(how.group))
	p.D.RouterBalance(device.RouterBalanceArgs{Probs: exact, Counts: counts, Logits: out.logits, Samples: how.samples, Score: r.rule.Score, K: int32(r.e.TopK),
		Bits: 51 - int64(bits.Len64(tokens))})
	if size(how.group) > 1 {
		for _, sum := range []Tensor{counts, exact} {
			if err := how.group.AllReduce(sum, comm.Sum).Wait(); err != nil {
				return counts, err
			}
		}
	}
	if p.Again || how.group != nil && how.group.Rank() > 0 {
		return counts, nil
	}
	p.D.Copy(probs, exact)
	losses, factor := tmp.Alloc(statsType(p), how.samples), tmp.Alloc(statsType(p), how.samples)
	p.D.RowDots(losses, probs, counts)
	p.D.Fill(factor, coefficient)
	p.D.WeightedSum(device.WeightedSumArgs{Out: p.Auxiliary.sums(how.loss, r.layer), X: losses, W: factor, Bits: p.Auxiliary.Bits})
	return counts, nil
}

// addSoFar adds to one micro-batch's counts those of the step before it, and keeps the sum for
// the micro-batch's second forward pass.
func (r *router) addSoFar(p *Pass, counts Tensor) {
	seen := p.Auxiliary.Seen.At(int64(r.layer))
	p.D.Add(seen, seen, counts.At(0))
	p.D.Copy(counts.At(0), seen)
	p.saved.soFar[r.layer] = counts
}

// addLoss adds coefficient·Σ x·w to the logged sum of a loss.
func (r *router) addLoss(p *Pass, loss AuxiliaryLoss, x, w Tensor, coefficient float64) {
	tmp := p.D.Arena.Scope(device.Activations)
	defer tmp.Release()
	factor := tmp.Alloc(w.DType, w.Shape[0])
	p.D.Fill(factor, coefficient)
	scaled := tmp.Like(w)
	p.D.ScaleRows(scaled, w, factor)
	p.D.WeightedSum(device.WeightedSumArgs{Out: p.Auxiliary.sums(loss, r.layer), X: x.Reshape(x.Len()), W: scaled.Reshape(x.Len())})
}

// zCoefficient is of Σ log²Σexp: the mean over the tokens here, a share of the ranks that
// have others. A layer that a micro-batch passes several times has it each time, as in Megatron;
// what is logged is the mean.
func (r *router) zCoefficient(p *Pass, rows int64) float64 {
	if p.Auxiliary.Bits > 0 {
		return r.e.ZLossCoeff
	}
	c := r.e.ZLossCoeff / float64(rows) / float64(size(r.tokens))
	if p.Auxiliary.PerToken {
		c *= p.Counted
	}
	return c
}

func (r *router) addZ(p *Pass, out *routed) {
	tmp := p.D.Arena.Scope(device.Activations)
	defer tmp.Release()
	rows := out.logits.Shape[0]
	squares, mean := tmp.Alloc(statsType(p), rows, 1), tmp.Alloc(statsType(p), rows, 1)
	p.D.RouterZ(device.RouterZArgs{Squares: squares.Reshape(rows), Logits: out.logits})
	if p.Auxiliary.Bits > 0 { // a token's share of its sample
		p.D.Fill(mean, float64(p.Batch)/float64(rows)/float64(size(r.tokens))/r.uses)
		p.D.WeightedSum(device.WeightedSumArgs{Out: p.Auxiliary.sums(ZLoss, r.layer), X: squares.Reshape(rows), W: mean.Reshape(rows), Bits: p.Auxiliary.Bits})
		return
	}
	p.D.Fill(mean, 1)
	r.addLoss(p, ZLoss, squares, mean, 1/float64(rows)/float64(size(r.tokens))/r.uses)
}

// unbalance adds the losses' gradients to that of the logits.
func (r *router) unbalance(p *Pass, saved *routed, dlogits Tensor) {
	if p.Auxiliary == nil {
		return
	}
	for _, b := range saved.losses {
		p.D.RouterBalance(device.RouterBalanceArgs{DLogits: dlogits, Counts: b.counts, Scale: p.Auxiliary.Scale, Logits: saved.logits,
			Samples: b.counts.Shape[0], Score: r.rule.Score, K: int32(r.e.TopK), Coefficient: b.coefficient})
	}
	if r.e.ZLossCoeff != 0 {
		p.D.RouterZ(device.RouterZArgs{DLogits: dlogits, Scale: p.Auxiliary.Scale, Logits: saved.logits, Coefficient: r.zCoefficient(p, saved.logits.Shape[0])})
	}
}

func size(g *comm.Group) int {
	if g == nil {
		return 1
	}
	return g.Size()
}
