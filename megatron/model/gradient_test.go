package model_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/megatron/model"
	"monotron/megatron/spec"
	"monotron/mpu"
	"monotron/mpu/comm/inproc"
)

// shapes are tiny models that between them use every part of a layer.
func shapes() map[string]spec.Model {
	gpt2 := spec.Model{
		NumLayers: 3, HiddenSize: 8, FFNHiddenSize: 12, NumAttentionHeads: 2, NumQueryGroups: 2, KVChannels: 4,
		VocabSize: 11, PaddedVocabSize: 16, MaxPositions: 6, Position: spec.PositionLearned, Normalization: spec.LayerNorm, NormEpsilon: 1e-5,
		Activation: spec.GeluTanh, LinearBias: true, QKVBias: true, Tied: true, WindowLeft: -1,
		HiddenDropout: 0.2, AttentionDropout: 0.2, InitStd: 0.3, EmbeddingInitStd: 0.3,
	}
	llama := gpt2
	llama.NumAttentionHeads, llama.Position, llama.Normalization, llama.QKNorm = 4, spec.PositionRope, spec.RMSNorm, true
	llama.RotaryBase, llama.RotaryPercent = 100, 1
	llama.Activation, llama.LinearBias, llama.QKVBias, llama.Tied = spec.Swiglu, false, false, false
	bloom := gpt2
	bloom.Position, bloom.EmbedNorm, bloom.Activation = spec.PositionAlibi, true, spec.GeluErf
	odd := llama // the rarer flags
	odd.NumQueryGroups, odd.RotaryPercent, odd.RotaryInterleaved, odd.NoRope = 1, 0.5, true, []bool{false, false, true}
	odd.Activation, odd.QKVBias, odd.NormOnePlus, odd.WindowLeft, odd.PaddedVocabCounts = spec.QuickGeglu, true, true, 2, true
	squared := gpt2
	squared.Activation, squared.Normalization, squared.Position, squared.QKNorm = spec.SquaredRelu, spec.RMSNorm, spec.PositionNone, true
	neox := gpt2
	neox.ParallelResidual, neox.Position, neox.RotaryBase, neox.RotaryPercent, neox.Tied = true, spec.PositionRope, 100, 0.5, false
	olmo2 := llama
	olmo2.NormAfter, olmo2.QKNormFull, olmo2.NumQueryGroups = true, true, 2
	olmo2.HiddenDropout = 0.2
	olmoBiased := olmo2
	olmoBiased.LinearBias, olmoBiased.QKVBias, olmoBiased.Normalization = true, true, spec.LayerNorm
	neo := gpt2
	neo.QKVBias, neo.WindowLeft, neo.Windowed, neo.SoftmaxScale = false, 1, []bool{false, true, false}, 1
	latent := llama // values narrower than keys
	latent.NumQueryGroups, latent.QKNorm, latent.KVChannels = 4, false, 6
	latent.Latent = &spec.Latent{QRank: 5, KVRank: 3, QKDim: 2, RopeDim: 4, VDim: 3, Norms: true, Yarn: true, Factor: 4, MScale: 0.7, MScaleAllDim: 1,
		OriginalMax: spec.YarnOriginalMax, FastTurns: spec.YarnFastTurns, SlowTurns: spec.YarnSlowTurns}
	wide := latent // values wider than keys, queries from the layer's input, no norms, biases
	wide.KVChannels, wide.LinearBias = 7, true
	wide.Latent = &spec.Latent{KVRank: 5, QKDim: 4, RopeDim: 2, VDim: 7, Factor: 1}
	delta := llama
	delta.NumQueryGroups, delta.OutputGate, delta.NormOnePlus = 2, true, true
	delta.Delta = &spec.Delta{KeyHeads: 2, ValueHeads: 4, KeyDim: 3, ValueDim: 2, Taps: 3, Layers: []bool{true, false, true}}
	full := llama // layers that differ in heads, values that are keys
	full.NumQueryGroups, full.QKNorm, full.ValueNorm, full.KeysAreValues, full.LayerScalar, full.WindowLeft, full.Windowed = 4, true, true, true, true, 2, []bool{true, false, true}
	full.Full = &spec.FullAttention{KVChannels: 6, NumQueryGroups: 2}
	valued := full
	valued.KeysAreValues = false
	small := valued // one layer with a window, one without, and a third that reads its keys
	small.KVShared, small.WideShared, small.PerLayerInput, small.NormSandwich, small.LinearBias, small.QKVBias = 1, true, 4, true, false, false
	small.NormEpsilon = 0.3 // norms of small outputs are too curved for differences
	parallel := small
	parallel.KVShared, parallel.WideShared, parallel.PerLayerInput = 0, false, 0
	parallel.ParallelMLP = true
	parallel.Experts = &spec.Experts{Num: 4, FFNHiddenSize: 6, Layers: []bool{false, true, true}, TopK: 2, ScoreFunction: spec.ScoreSoftmax, Balancing: []string{spec.NoBalancing}, AuxLossCoeff: []float64{0}}
	growing := llama
	growing.QueryGrowth, growing.QueryGrowthFrom, growing.QueryGrowthAll = 0.7, 2, true
	conv := llama
	conv.NumQueryGroups = 2
	conv.Conv = &spec.ShortConv{Taps: 3, Layers: []bool{true, false, true}}
	scan := llama // one group of B and C, which a tensor-parallel rank shares with others
	scan.NumQueryGroups, scan.QKNorm, scan.Position, scan.NormEpsilon = 2, false, spec.PositionNone, 0.05
	scan.InitStd = 0.5 // B, C and time steps by which states change much
	scan.Mamba = &spec.Mamba{Heads: 4, Groups: 1, HeadDim: 3, StateDim: 5, Taps: 3, ConvBias: true, DtMin: 0.3, DtMax: 2, Layers: []bool{true, false, true}}
	scans := scan
	scans.Mamba = &spec.Mamba{Heads: 8, Groups: 4, HeadDim: 3, StateDim: 5, Taps: 4, Layers: []bool{true, true, true}}
	hybrid := scan // layers of one sublayer
	hybrid.Mamba = &spec.Mamba{Heads: 4, Groups: 2, HeadDim: 3, StateDim: 5, Taps: 3, DtMin: 0.3, Layers: []bool{true, false, false}}
	hybrid.Sublayers = []spec.Sublayers{spec.MixerAlone, spec.MLPAlone, spec.MixerAlone}
	gated := llama // with the norms of queries and keys left out
	gated.NumQueryGroups, gated.QKNorm, gated.OutputGate, gated.QKVBias = 2, false, true, true
	all := map[string]spec.Model{"gated delta net": delta, "short convolution": conv, "state-space scan": scan, "state-space scans of groups": scans, "layers of one sublayer": hybrid, "growing queries": growing, "heads by layer": full, "shared keys and embeddings of layers": small, "experts in parallel with an MLP": parallel, "normed values": valued, "gated attention": gated, "latent": latent, "latent, wide values": wide, "olmo2": olmo2, "olmo2 with biases": olmoBiased, "gpt-neo": neo, "gpt2": gpt2, "llama": llama, "bloom": bloom, "odd": odd, "squared relu": squared, "gpt-neox": neox}
	for name, e := range mixtures() {
		m := llama
		if strings.Contains(name, "biases") {
			m = gpt2
		}
		m.Experts = &e
		all[name] = m
	}
	return all
}

// mixtures are experts that between them use every part of a router and of an expert; the
// first layer is dense.
func mixtures() map[string]spec.Experts {
	plain := spec.Experts{Num: 4, FFNHiddenSize: 6, Layers: []bool{false, true, true}, TopK: 2, ScoreFunction: spec.ScoreSoftmax,
		Balancing: []string{spec.AuxLoss}, AuxLossCoeff: []float64{0.7}}
	pre, sigmoid, root, biases := plain, plain, plain, plain
	quantiles := plain
	quantiles.Balancing, quantiles.AuxLossCoeff, quantiles.ScoreFunction = []string{spec.Quantiles}, []float64{0}, spec.ScoreSigmoid
	root.JitterEps, pre.JitterEps = 0.1, 0.3
	pre.PreSoftmax, pre.ZLossCoeff, pre.SharedFFN, pre.SharedGate = true, 0.3, 5, true
	sigmoid.ScoreFunction, sigmoid.ScalingFactor, sigmoid.SharedFFN = spec.ScoreSigmoid, 2.5, 5
	sigmoid.Num, sigmoid.NumGroups, sigmoid.GroupTopK, sigmoid.TopK = 8, 4, 2, 4
	sigmoid.Balancing, sigmoid.AuxLossCoeff = []string{spec.SeqAuxLoss, spec.GlobalAuxLoss, spec.AuxLoss}, []float64{0.5, 0.25, 0.125}
	root.ScoreFunction, root.TopK, root.ProbsOnInput = spec.ScoreSqrtSoftplus, 1, true
	full := sigmoid
	full.NumGroups, full.GroupTopK, full.CapacityFactor, full.DropPolicy = 0, 0, 0.7, spec.DropByWeight
	narrow := plain
	narrow.LatentSize, narrow.SharedFFN = 5, 4
	return map[string]spec.Experts{"experts by quantiles": quantiles, "latent experts": narrow, "full experts": full, "softmax experts": plain, "pre-softmax experts": pre, "sigmoid experts": sigmoid, "sqrtsoftplus experts": root, "experts with biases": biases}
}

// ownLosses is the sum of the layers' own losses, as strong as the rig has them.
func (g *rig) ownLosses(e *spec.Experts) (sum float64) {
	values := g.read(g.pass.Auxiliary.Losses)
	layers := g.pass.Auxiliary.Losses.Shape[1]
	of := func(loss model.AuxiliaryLoss) (total float64) {
		for l := range layers {
			total += values[2*(int64(loss)*layers+l)]
		}
		return total
	}
	for i, kind := range e.Balancing {
		loss := map[string]model.AuxiliaryLoss{spec.AuxLoss: model.LoadBalancingLoss, spec.SeqAuxLoss: model.SeqLoadBalancingLoss, spec.GlobalAuxLoss: model.GlobalLoadBalancingLoss}[kind]
		sum += e.AuxLossCoeff[i] * of(loss)
	}
	return ownWeight * (sum + e.ZLossCoeff*of(model.ZLoss))
}

// rig is a model with one micro-batch on the oracle.
type rig struct {
	d     *device.Device
	stage *model.Stage
	grads device.Tensor
	seq   int
	m     spec.Model
	pass  model.Pass
}

const (
	testSeq, testBatch = 6, 3
	lossScale          = 4
	ownWeight          = 0.5 // of layers' own losses
)

func newRig(t *testing.T, m spec.Model, dtype device.DType, r model.Recompute) *rig {
	t.Helper()
	d := ref.Open()
	t.Cleanup(d.Arena.Close)
	return newRigOn(t, d, m, dtype, r, model.Alone(d))
}

func newRigOn(t *testing.T, d *device.Device, m spec.Model, dtype device.DType, r model.Recompute, p model.Parallel) *rig {
	t.Helper()
	layers := make([]int, m.NumLayers)
	for i := range layers {
		layers[i] = i
	}
	stage, err := model.NewStage(d, model.StageConfig{Model: &m, Layers: layers, Embedding: true, Head: true, Recompute: r, DType: dtype}, p)
	if err != nil {
		t.Fatal(err)
	}
	g := &rig{d: d, stage: stage, grads: stage.Materialize(testSeq, true), seq: testSeq, m: m}
	for _, p := range stage.Params() {
		if strings.HasSuffix(p.Name, ".A_log") || p.Init.Kind == mpu.InitTimeStep { // states that last and move, or a few positions show no gradient
			p.Init = mpu.Init{Std: 0.5}
		}
		p.Initialize(d, 7)
		g.set(p, jitter(p, g.values(p)))
	}
	g.batch(m.VocabSize, dtype)
	if m.Experts != nil {
		g.pass.Micro, g.pass.Auxiliary = 1, model.NewAuxiliary(d, int64(m.NumLayers), int64(m.Experts.Num), dtype)
	}
	return g
}

// jitter moves constants (norm weights, biases) off their special values.
func jitter(p *mpu.Param, x []float64) []float64 {
	rng := rand.New(rand.NewPCG(1, uint64(len(p.Name))))
	if p.Init.Kind == mpu.InitConstant {
		for i := range x {
			x[i] += 0.2 * rng.NormFloat64()
		}
	}
	return x
}

// batch has repeated tokens, masked tokens, uneven weights and documents.
func (g *rig) batch(vocab int, dtype device.DType) {
	tokens := g.seq * testBatch
	ids, labels, positions := make([]int32, tokens), make([]int32, tokens), make([]int32, tokens)
	weight, start := make([]float32, tokens), make([]int32, tokens)
	for i := range g.seq {
		for j := range testBatch {
			at := i*testBatch + j
			ids[at], labels[at] = int32((i*3+j*5)%vocab), int32((i*7+j+1)%vocab)
			positions[at] = int32(i)
			weight[at] = float32((i+j)%4) / 8
			if j == 1 && i >= 2 { // the second sample is two documents
				positions[at], start[j*g.seq+i] = int32(i-2), 2
			}
		}
	}
	keep := func(dtype device.DType, n int) device.Tensor {
		return g.d.Arena.Alloc(device.Workspace, dtype, int64(n))
	}
	g.pass = model.Pass{D: g.d, DType: dtype, Positions: mpu.AllPositions(int64(g.seq)), Batch: testBatch, Seed: 5, Grad: true,
		IDs: keep(device.I32, tokens), Labels: keep(device.I32, tokens), PositionIDs: keep(device.I32, tokens), Weight: keep(device.F32, tokens),
		DocStart: keep(device.I32, tokens).Reshape(testBatch, int64(g.seq)), LossScale: keep(device.F32, 1), Step: keep(device.I64, 1), Samples: keep(device.I32, testBatch)}
	device.WriteSlice(g.d, g.pass.IDs, ids)
	device.WriteSlice(g.d, g.pass.Labels, labels)
	device.WriteSlice(g.d, g.pass.PositionIDs, positions)
	device.WriteSlice(g.d, g.pass.Weight, weight)
	device.WriteSlice(g.d, g.pass.DocStart, start)
	device.WriteSlice(g.d, g.pass.LossScale, []float32{lossScale})
	device.WriteSlice(g.d, g.pass.Step, []int64{3})
	device.WriteSlice(g.d, g.pass.Samples, []int32{4, 9, 2})
}

func (g *rig) read(t device.Tensor) []float64 {
	raw := make([]byte, t.Bytes())
	g.d.Read(raw, t)
	return device.ToFloat64(t.DType, raw)
}

func (g *rig) values(p *mpu.Param) []float64 { return g.read(p.Value) }

func (g *rig) set(p *mpu.Param, x []float64) {
	g.d.Write(p.Value, device.FromFloat64(p.Value.DType, x))
}

// loss is Σ weight·loss of the tokens, by a forward alone.
func (g *rig) loss(t *testing.T) float64 {
	t.Helper()
	pass := g.pass
	pass.Grad = false
	pass.Auxiliary.Begin(g.d, ownWeight*lossScale)
	out, err := g.stage.Forward(&pass, device.Tensor{})
	if err != nil {
		t.Fatal(err)
	}
	defer out.Release()
	sum := 0.0
	weight := g.read(g.pass.Weight)
	for i, l := range g.read(out.Loss) {
		sum += l * weight[i]
	}
	if e := g.m.Experts; e != nil {
		sum += g.ownLosses(e)
	}
	return sum
}

// gradients runs forward and backward and returns every parameter's gradient.
func (g *rig) gradients(t *testing.T) map[string][]float64 {
	t.Helper()
	g.d.Fill(g.grads, 0)
	g.pass.Auxiliary.Begin(g.d, ownWeight*lossScale)
	out, err := g.stage.Forward(&g.pass, device.Tensor{})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.stage.Backward(&g.pass, out, device.Tensor{}, device.Tensor{}); err != nil {
		t.Fatal(err)
	}
	all := map[string][]float64{}
	for _, p := range g.stage.Params() {
		all[p.Name] = g.read(p.Grad)
	}
	return all
}

// Claim: for every parameter tensor the gradient is the derivative of the loss:
// along a random direction and along single elements, by central differences in
// float64, with dropout, document boundaries, masked tokens and a loss scale.
func TestGradientsAreDerivatives(t *testing.T) {
	for name, m := range shapes() {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, m, device.F64, model.Recompute{})
			gradients := g.gradients(t)
			worst := 0.0
			for n, p := range g.stage.Params() {
				grad := gradients[p.Name]
				scale := 0.0
				for _, v := range grad {
					scale = math.Max(scale, math.Abs(v)/lossScale)
				}
				if scale == 0 {
					t.Errorf("%s has no gradient at all", p.Name)
				}
				for k, direction := range directions(len(grad), uint64(n)) {
					want := 0.0
					for i, v := range direction {
						want += v * grad[i] / lossScale
					}
					off := math.Abs(g.slope(t, p, direction)-want) / scale
					worst = math.Max(worst, off)
					if !(off < 1e-8) {
						t.Errorf("%s, direction %d: gradient %g, off by %.2g of it", p.Name, k, want, off)
					}
				}
			}
			t.Logf("largest difference %.2g of the tensor's largest gradient", worst)
		})
	}
}

// directions are one random vector and three axes, of length 1.
func directions(n int, seed uint64) [][]float64 {
	rng := rand.New(rand.NewPCG(11, seed))
	all := make([][]float64, 4)
	for k := range all {
		all[k] = make([]float64, n)
	}
	size := 0.0
	for i := range n {
		all[0][i] = rng.NormFloat64()
		size += all[0][i] * all[0][i]
	}
	for i := range n {
		all[0][i] /= math.Sqrt(size)
	}
	for k := 1; k < len(all); k++ {
		all[k][rng.IntN(n)] = 1
	}
	return all
}

// slope is the loss's derivative along a direction in p, to fourth order.
func (g *rig) slope(t *testing.T, p *mpu.Param, direction []float64) float64 {
	t.Helper()
	const h = 1e-4
	start := g.values(p)
	defer g.set(p, start)
	at := func(step float64) float64 {
		moved := make([]float64, len(start))
		for i := range moved {
			moved[i] = start[i] + step*direction[i]
		}
		g.set(p, moved)
		return g.loss(t)
	}
	return (8*(at(h)-at(-h)) - (at(2*h) - at(-2*h))) / (12 * h)
}

// Claim: recomputed layers give the same gradients bit for bit, dropout included,
// and nothing of a micro-batch is left behind.
func TestRecomputeChangesNoBit(t *testing.T) {
	ways := []model.Recompute{
		{Granularity: "full", Method: "uniform", NumLayers: 1},
		{Granularity: "full", Method: "uniform", NumLayers: 2},
		{Granularity: "full", Method: "uniform", NumLayers: 3},
		{Granularity: "full", Method: "block", NumLayers: 1},
		{Granularity: "full", Method: "block", NumLayers: 2},
		{Granularity: "selective", Modules: []string{"core_attn"}},
		{Granularity: "selective", Modules: []string{"mlp"}},
		{Granularity: "selective", Modules: []string{"layernorm"}},
		{Granularity: "selective", Modules: []string{"core_attn", "mlp", "layernorm"}},
		{Granularity: "selective", Modules: []string{"moe"}},
		{Granularity: "selective", Modules: []string{"moe_act", "shared_experts"}},
	}
	for name, m := range shapes() {
		plain := newRig(t, m, device.F32, model.Recompute{})
		want := fmt.Sprint(plain.gradients(t))
		for _, way := range ways {
			g := newRig(t, m, device.F32, way)
			before := g.d.Arena.Usage().Allocated
			if got := fmt.Sprint(g.gradients(t)); got != want {
				t.Errorf("%s, %+v: other gradients than without recomputation", name, way)
			}
			if after := g.d.Arena.Usage().Allocated; after != before {
				t.Errorf("%s, %+v: %d bytes are left behind", name, way, after-before)
			}
		}
	}
}

// Claim: masks change with the step and with a sample's number in the global
// batch, and with nothing else.
func TestDropoutFollowsTheSample(t *testing.T) {
	for name, m := range shapes() {
		g := newRig(t, m, device.F32, model.Recompute{})
		first := g.loss(t)
		device.WriteSlice(g.d, g.pass.Step, []int64{4})
		if g.loss(t) == first {
			t.Errorf("%s: two steps drop the same elements", name)
		}
		device.WriteSlice(g.d, g.pass.Step, []int64{3})
		device.WriteSlice(g.d, g.pass.Samples, []int32{5, 9, 2})
		if g.loss(t) == first {
			t.Errorf("%s: two samples drop the same elements", name)
		}
		device.WriteSlice(g.d, g.pass.Samples, []int32{4, 9, 2})
		if g.loss(t) != first {
			t.Errorf("%s: the same step and samples drop other elements", name)
		}
	}
}

// TestGlobalAuxExact: on two ranks that have the same samples the global loss's part of the
// gradients is half of one rank's, as Megatron's is, and with GlobalExact all of it.
func TestGlobalAuxExact(t *testing.T) {
	of := func(ranks int, coefficient float64, exact bool) (grads []float64) {
		m := shapes()["softmax experts"]
		e := *m.Experts
		e.Balancing, e.AuxLossCoeff, e.GlobalExact = []string{spec.GlobalAuxLoss}, []float64{coefficient}, exact
		m.Experts = &e
		world := inproc.NewWorld(ranks)
		if err := world.Run(func(rank int) error {
			d := ref.Open()
			defer d.Arena.Close()
			p, members := model.Alone(d), []int{0, 1}[:ranks]
			var err error
			if p.AllTokens, err = world.Group(rank, "all", members, d); err != nil {
				return err
			}
			all := newRigOn(t, d, m, device.F64, model.Recompute{}, p).gradients(t)
			if rank == 0 {
				grads = all["decoder.layers.1.mlp.router.weight"]
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return grads
	}
	none, one, two, exact := of(1, 0, false), of(1, 3, false), of(2, 3, false), of(2, 3, true)
	for i := range none {
		if uncut := one[i] - none[i]; math.Abs(exact[i]-one[i]) > 1e-9 || math.Abs(two[i]-none[i]-uncut/2) > 1e-9 {
			t.Fatalf("element %d: %g of the loss on one rank, %g on two, exact %g", i, uncut, two[i]-none[i], exact[i]-none[i])
		}
	}
	if slices.Equal(none, one) {
		t.Error("the loss has no gradient")
	}
}
