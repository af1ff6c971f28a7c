package model

import (
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
	samples int64       // told apart
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

// count makes one loss's numbers of the rows here, and adds its value.
func (r *router) count(p *Pass, s *device.Scope, out *routed, how sharing) (b balance, err error) {
	tmp := p.D.Arena.Scope(device.Activations)
	defer tmp.Release()
	experts, k := int64(r.e.Num), float64(r.e.TopK)
	b.counts = s.Alloc(statsType(p), how.samples, experts)
	probs := tmp.Like(b.counts)
	p.D.RouterBalance(device.RouterBalanceArgs{Probs: probs, Counts: b.counts, Logits: out.logits, Samples: how.samples, Score: r.rule.Score, K: int32(r.e.TopK)})
	if how.group != nil && how.group.Size() > 1 {
		if err := how.group.AllReduce(b.counts, comm.Sum).Wait(); err != nil {
			return b, err
		}
	}
	tokens := float64(out.logits.Shape[0]/how.samples) * float64(size(how.group))
	b.coefficient = float64(experts) / (k * tokens * tokens) / float64(how.samples)
	if how.loss == GlobalLoadBalancingLoss {
		b = r.meanSoFar(p, b)
	}
	if !p.Again {
		r.addLoss(p, how.loss, probs, b.counts, b.coefficient)
	}
	if how.loss == GlobalLoadBalancingLoss && r.e.GlobalExact { // the loss of all ranks is averaged once more
		b.coefficient *= float64(size(how.group)) / float64(size(r.tokens))
	}
	if p.Auxiliary.PerToken {
		b.coefficient *= float64(out.logits.Shape[0]) * float64(size(r.tokens))
	}
	return b, nil
}

// meanSoFar makes of one micro-batch's counts the mean over those of the step so far.
func (r *router) meanSoFar(p *Pass, b balance) balance {
	seen := p.Auxiliary.Seen.At(int64(r.layer))
	if !p.Again {
		p.D.Add(seen, seen, b.counts.At(0))
	}
	p.D.Copy(b.counts.At(0), seen)
	b.coefficient /= float64(p.Micro)
	return b
}

// addLoss adds coefficient·Σ x·w to what is told of a loss.
func (r *router) addLoss(p *Pass, loss AuxiliaryLoss, x, w Tensor, coefficient float64) {
	tmp := p.D.Arena.Scope(device.Activations)
	defer tmp.Release()
	factor := tmp.Alloc(w.DType, w.Shape[0])
	p.D.Fill(factor, coefficient)
	scaled := tmp.Like(w)
	p.D.ScaleRows(scaled, w, factor)
	p.D.WeightedSum(p.Auxiliary.place(loss, r.layer), x.Reshape(x.Len()), scaled.Reshape(x.Len()))
}

// zCoefficient is of Σ log²Σexp: the mean over the tokens here, a share of the ranks that
// have others.
func (r *router) zCoefficient(p *Pass, rows int64) float64 {
	c := r.e.ZLossCoeff / float64(rows) / float64(size(r.tokens))
	if p.Auxiliary.PerToken {
		c *= float64(rows) * float64(size(r.tokens))
	}
	return c
}

func (r *router) addZ(p *Pass, out *routed) {
	tmp := p.D.Arena.Scope(device.Activations)
	defer tmp.Release()
	rows := out.logits.Shape[0]
	squares, mean := tmp.Alloc(statsType(p), rows, 1), tmp.Alloc(statsType(p), rows, 1)
	p.D.RouterZ(device.RouterZArgs{Squares: squares.Reshape(rows), Logits: out.logits})
	p.D.Fill(mean, 1)
	r.addLoss(p, ZLoss, squares, mean, 1/float64(rows)/float64(size(r.tokens)))
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
