package model

import (
	"cmp"
	"fmt"
	"slices"

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

	scale *routerScale // nil: none

	region mpu.Region
	uses   float64 // how often a micro-batch passes

	bias Tensor // f32 [experts]: added to the scores for the choice alone; none
	beta Tensor // f32 [experts]: with quantile_balancing taken off the logits for the choice; none
}

func newRouter(m *spec.Model, layer int, name string, p Parallel) *router {
	e := m.Experts
	r := &router{m: m, e: e, layer: layer, tokens: p.Tokens, allTokens: p.AllTokens, region: p.region(), uses: float64(m.Uses(layer)), linear: mpu.NewLinear(p.region(), mpu.LinearConfig{Name: name + ".router", Out: int64(e.Num), In: int64(m.HiddenSize),
		Bias: m.LinearBias, Init: mpu.Init{Std: m.InitStd}})}
	r.scale = newRouterScale(m, name+".router", p)
	r.rule = device.RouterRule{Score: r.score(), Groups: int32(e.NumGroups), GroupTopK: int32(e.GroupTopK), GroupBest: int32(e.BestOfGroup()), Scaling: 1}
	if e.ScalingFactor != 0 {
		r.rule.Scaling = float32(e.ScalingFactor)
	}
	return r
}

// prepare allocates the buffers that are not parameters.
func (r *router) prepare(d *device.Device) {
	if r.e.ExpertBias {
		r.bias = d.Arena.Zeroed(device.Parameters, device.F32, int64(r.e.Num))
	}
	if r.byQuantiles() {
		r.beta = d.Arena.Zeroed(device.Parameters, device.F32, int64(r.e.Num))
	}
}

// moveBias makes experts that got fewer tokens than the mean easier to choose, and the
// others harder (Wang et al., arXiv 2408.15664).
func (r *router) moveBias(d *device.Device, tokens []float64) {
	if !r.bias.Given() {
		return
	}
	bias := device.ReadSlice[float32](d, r.bias)
	for i, sign := range towardsMean(tokens) {
		bias[i] += sign * float32(r.e.BiasUpdateRate)
	}
	device.WriteSlice(d, r.bias, bias)
}

// towardsMean is 1 for counts below their mean, −1 for those above it, 0 for those that are it.
func towardsMean(counts []float64) (signs []float32) {
	sum := 0.0
	for _, n := range counts {
		sum += n
	}
	mean := sum / float64(len(counts)) // a sum of quotients would miss counts that are the mean
	for _, n := range counts {
		signs = append(signs, float32(cmp.Compare(mean, n)))
	}
	return signs
}

// score is the spec's score function as the device knows it.
func (r *router) score() device.RouterScore {
	switch {
	case slices.Contains(r.e.Balancing, spec.Sinkhorn): // weights are not renormalised
		if r.e.TopK == 1 {
			return device.SigmoidScore
		}
		return device.SoftmaxOfAll
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
	experts Tensor // i32 [rows, k]: chosen
	sent    Tensor // i32 [rows, k]: those that are not dropped for lack of capacity; else −1
	weights Tensor // f32 [rows, k]
	losses  []balance
	scaled  *routerScaled // nil: as the router has them
}

// forward routes x [rows, h].
func (r *router) forward(p *Pass, s *device.Scope, x Tensor) (*routed, error) {
	rows, k := x.Shape[0], int64(r.e.TopK)
	out := &routed{logits: s.Alloc(r.dtype(p), rows, int64(r.e.Num)), experts: s.Alloc(device.I32, rows, k), weights: s.Alloc(statsType(p), rows, k)}
	tmp := p.D.Arena.Scope(device.Activations)
	defer tmp.Release()
	if r.scale != nil {
		out.scaled = r.scale.forward(p, s, x)
		x = out.scaled.in
	}
	r.linear.Forward(p.D, out.logits, r.jittered(p, tmp, x))
	if r.forced(p) {
		r.randomLogits(p, tmp, out.logits)
	}
	choice := device.RouterForwardArgs{Weights: out.weights, Experts: out.experts, Logits: out.logits, Bias: r.bias, Keys: r.keys(p, tmp, out.logits), Rule: r.rule}
	if r.byQuantiles() {
		if err := r.lessQuantiles(p, tmp, &choice); err != nil {
			return nil, err
		}
	}
	p.D.RouterForward(choice)
	if r.scale != nil {
		r.scale.multiply(p, s, out.scaled, out.weights, out.experts)
	}
	r.drop(p, s, out)
	return out, r.balance(p, s, out)
}

// forced reports whether random numbers stand for the logits (--moe-router-force-load-balancing).
func (r *router) forced(p *Pass) bool { return r.e.ForceBalance && p.Step.Given() }

// randomLogits sets logits f32 [rows, experts] to uniform numbers in [0, 2), drawn by sample,
// position and expert, so that every layout draws the same.
func (r *router) randomLogits(p *Pass, tmp *device.Scope, logits Tensor) {
	ones := tmp.Like(logits)
	p.D.Fill(ones, 1)
	draw := hiddenDropout{pass: p, jitter: 1, at: fmt.Sprintf("layers.%d.router", r.layer), positions: r.region.Positions(p.Positions)}
	draw.add(device.DropoutAddArgs{Out: logits, X: ones})
}

// noise is what the router's input is multiplied by.
func (r *router) noise(p *Pass) hiddenDropout {
	return hiddenDropout{pass: p, jitter: r.e.JitterEps, at: fmt.Sprintf("layers.%d.router_jitter", r.layer), positions: r.region.Positions(p.Positions)}
}

// jittered is the router's input with noise, in training (--moe-input-jitter-eps).
func (r *router) jittered(p *Pass, tmp *device.Scope, x Tensor) Tensor {
	noise := r.noise(p)
	if noise.none() {
		return x
	}
	y := tmp.Like(x)
	noise.add(device.DropoutAddArgs{Out: y, X: x})
	return y
}

// unjitter makes of the gradient of the noisy input that of the input.
func (r *router) unjitter(p *Pass, dx Tensor) {
	if noise := r.noise(p); !noise.none() {
		noise.backward(dx, dx)
	}
}

// keys are what experts are chosen by where it is not the scores; none: it is.
func (r *router) keys(p *Pass, tmp *device.Scope, logits Tensor) Tensor {
	if !p.Step.Given() || !slices.Contains(r.e.Balancing, spec.Sinkhorn) {
		return Tensor{}
	}
	keys := tmp.Alloc(statsType(p), logits.Dims()...)
	p.D.RouterSinkhorn(keys, logits)
	return keys
}

// drop leaves out choices beyond an expert's capacity.
func (r *router) drop(p *Pass, s *device.Scope, out *routed) {
	out.sent = out.experts
	if r.e.CapacityFactor == 0 {
		return
	}
	out.sent = s.Like(out.experts)
	p.D.RouterDrop(device.RouterDropArgs{Kept: out.sent, Experts: out.experts, Weights: out.weights, Capacity: r.e.Capacity(out.experts.Shape[0]),
		NumExperts: int64(r.e.Num), ByPosition: flag(r.e.DropPolicy == spec.DropByPosition)})
}

func flag(on bool) int32 {
	if on {
		return 1
	}
	return 0
}

// note counts the tokens of the experts here; with padding to capacity each expert works on
// as many, whoever has it, and counts as full, as in Megatron.
func (r *router) note(p *Pass, out *routed, at mpu.ExpertShare, sent *mpu.Dispatched) {
	s := p.D.Arena.Scope(device.Activations)
	defer s.Release()
	all := p.Auxiliary.Tokens.At(int64(r.layer))
	if r.e.PadToCapacity && r.e.CapacityFactor > 0 {
		full := s.Like(all)
		p.D.Fill(full, float64(min(out.experts.Shape[0], r.e.Capacity(out.experts.Shape[0]))))
		p.D.Add(all, all, full)
		return
	}
	if at.Part > 0 { // the first part's rank counts
		return
	}
	ones := s.Alloc(p.DType, sent.Rows(), 1)
	p.D.Fill(ones, 1)
	p.D.GroupedSum(device.GroupedSumArgs{Out: all.Slice(0, int64(at.First), int64(at.Here)).Reshape(int64(at.Here), 1), X: ones, Offsets: sent.Offsets})
}

// dtype is that of the logits; random ones are f32, since narrow types have few numbers in
// [0, 2) and many experts would tie.
func (r *router) dtype(p *Pass) device.DType {
	if r.e.RouterDtype != "" || r.forced(p) {
		return statsType(p)
	}
	return p.DType
}

// backward sets dx from the gradient of the weights; x is forward's input.
func (r *router) backward(p *Pass, saved *routed, dx, dweights, x Tensor) {
	s := p.D.Arena.Scope(device.Activations)
	defer s.Release()
	in := x
	if r.scale != nil {
		dweights, in = r.scale.divide(p, s, saved.scaled, dweights, saved.experts), saved.scaled.in
	}
	dlogits := s.Alloc(statsType(p), saved.logits.Dims()...)
	p.D.RouterBackward(device.RouterBackwardArgs{DLogits: dlogits, DWeights: dweights, Experts: saved.experts, Logits: saved.logits, Rule: r.rule})
	r.unbalance(p, saved, dlogits)
	narrow := dlogits
	if dlogits.DType != p.DType {
		narrow = s.Alloc(p.DType, dlogits.Dims()...)
		p.D.Copy(narrow, dlogits)
	}
	din := dx
	if r.scale != nil {
		din = s.Like(dx)
	}
	r.linear.Backward(p.D, &p.Hooks, din, narrow, r.jittered(p, s, in))
	if r.unjitter(p, din); r.scale != nil {
		r.scale.backward(p, saved.scaled, dx, din, x)
	}
}
