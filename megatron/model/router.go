package model

import (
	"monotron/csrc/device"
	"monotron/megatron/spec"
	"monotron/mpu"
	"monotron/mpu/comm"
)

// router chooses the experts of every token: Megatron's TopKRouter.
type router struct {
	m         *spec.Model
	e         *spec.Experts
	layer     int // global, 0-based
	linear    *mpu.Linear
	rule      device.RouterRule
	tokens    *comm.Group // ranks that share a micro-batch's tokens (topology.TPCP)
	allTokens *comm.Group // ranks that share a batch's (topology.TPDPCP)

	bias Tensor // f32 [experts]: added to the scores for the choice alone; none
}

func newRouter(m *spec.Model, layer int, name string, p Parallel) *router {
	e := m.Experts
	r := &router{m: m, e: e, layer: layer, tokens: p.Tokens, allTokens: p.AllTokens, linear: mpu.NewLinear(p.region(), mpu.LinearConfig{Name: name + ".router", Out: int64(e.Num), In: int64(m.HiddenSize),
		Bias: m.LinearBias, Init: mpu.Init{Std: m.InitStd}})}
	r.rule = device.RouterRule{Score: r.score(), Groups: int32(e.NumGroups), GroupTopK: int32(e.GroupTopK), Scaling: 1}
	if e.ScalingFactor != 0 {
		r.rule.Scaling = float32(e.ScalingFactor)
	}
	return r
}

// prepare gives the bias its memory.
func (r *router) prepare(d *device.Device) {
	if r.e.ExpertBias {
		r.bias = d.Arena.Zeroed(device.Parameters, device.F32, int64(r.e.Num))
	}
}

// moveBias makes experts that got fewer tokens than the mean easier to choose, and the
// others harder (Wang et al., arXiv 2408.15664).
func (r *router) moveBias(d *device.Device, tokens []float64) {
	if !r.bias.Given() {
		return
	}
	mean := 0.0
	for _, n := range tokens {
		mean += n / float64(len(tokens))
	}
	bias := device.ReadSlice[float32](d, r.bias)
	for i, n := range tokens {
		switch {
		case n < mean:
			bias[i] += float32(r.e.BiasUpdateRate)
		case n > mean:
			bias[i] -= float32(r.e.BiasUpdateRate)
		}
	}
	device.WriteSlice(d, r.bias, bias)
}

// score is the spec's score function as the device knows it.
func (r *router) score() device.RouterScore {
	switch {
	case r.e.ScoreFunction == spec.ScoreSigmoid:
		return device.SigmoidScore
	case r.e.ScoreFunction == spec.ScoreSqrtSoftplus:
		return device.SqrtSoftplusScore
	case r.e.PreSoftmax:
		return device.SoftmaxOfAll
	}
	return device.SoftmaxOfChosen
}

// routed is what a router says of a micro-batch's rows, and what its backward needs.
type routed struct {
	logits  Tensor // [rows, experts]
	experts Tensor // i32 [rows, k]
	weights Tensor // f32 [rows, k]
	losses  []balance
}

// forward routes x [rows, h].
func (r *router) forward(p *Pass, s *device.Scope, x Tensor) (*routed, error) {
	rows, k := x.Shape[0], int64(r.e.TopK)
	out := &routed{logits: s.Alloc(r.dtype(p), rows, int64(r.e.Num)), experts: s.Alloc(device.I32, rows, k), weights: s.Alloc(statsType(p), rows, k)}
	r.linear.Forward(p.D, out.logits, x)
	p.D.RouterForward(device.RouterForwardArgs{Weights: out.weights, Experts: out.experts, Logits: out.logits, Bias: r.bias, Rule: r.rule})
	return out, r.balance(p, s, out)
}

// note counts the tokens of each expert.
func (r *router) note(p *Pass, out *routed) {
	s := p.D.Arena.Scope(device.Activations)
	defer s.Release()
	n, experts := out.experts.Len(), int64(r.e.Num)
	rows, slots, offsets := s.Alloc(device.I32, n), s.Like(out.experts), s.Alloc(device.I32, experts+1)
	p.D.ExpertOrder(device.ExpertOrderArgs{Rows: rows, Slots: slots, Offsets: offsets, Experts: out.experts, Width: 1})
	ones := s.Alloc(p.DType, n, 1)
	p.D.Fill(ones, 1)
	p.D.GroupedSum(p.Auxiliary.Tokens.At(int64(r.layer)).Reshape(experts, 1), ones, offsets)
}

// dtype is that of the logits.
func (r *router) dtype(p *Pass) device.DType {
	if r.e.RouterDtype != "" {
		return statsType(p)
	}
	return p.DType
}

// backward sets dx from the gradient of the weights; x is forward's input.
func (r *router) backward(p *Pass, saved *routed, dx, dweights, x Tensor) {
	s := p.D.Arena.Scope(device.Activations)
	defer s.Release()
	dlogits := s.Alloc(statsType(p), saved.logits.Dims()...)
	p.D.RouterBackward(device.RouterBackwardArgs{DLogits: dlogits, DWeights: dweights, Experts: saved.experts, Logits: saved.logits, Rule: r.rule})
	r.unbalance(p, saved, dlogits)
	narrow := dlogits
	if dlogits.DType != p.DType {
		narrow = s.Alloc(p.DType, dlogits.Dims()...)
		p.D.Copy(narrow, dlogits)
	}
	r.linear.Backward(p.D, dx, narrow, x)
}
