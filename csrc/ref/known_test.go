package ref_test

import (
	"math"
	"testing"

	"monotron/csrc/device"
	"monotron/csrc/device/activations"
	"monotron/csrc/ref"
)

// The answers here were worked out by hand or from closed forms, never with the
// code under test. Values are F64, so they are exact to a few 1e-16.

// known is a device with typed short cuts.
type known struct {
	*device.Device
	t *testing.T
}

func open(t *testing.T) known { return known{ref.Open(), t} }

func (k known) f64(values []float64, shape ...int64) device.Tensor {
	return k.of(device.F64, values, shape...)
}

func (k known) of(d device.DType, values []float64, shape ...int64) device.Tensor {
	if len(shape) == 0 {
		shape = []int64{int64(len(values))}
	}
	x := k.Arena.Alloc(device.Workspace, d, shape...)
	k.Write(x, device.FromFloat64(d, values))
	return x
}

func (k known) i32(values ...float64) device.Tensor { return k.of(device.I32, values) }

func (k known) empty(shape ...int64) device.Tensor {
	x := k.Arena.Alloc(device.Workspace, device.F64, shape...)
	k.Fill(x, math.NaN())
	return x
}

func (k known) values(x device.Tensor) []float64 {
	raw := make([]byte, x.Bytes())
	k.Read(raw, x)
	return device.ToFloat64(x.DType, raw)
}

func (k known) want(name string, x device.Tensor, want ...float64) {
	k.t.Helper()
	got := k.values(x)
	if len(got) != len(want) {
		k.t.Fatalf("%s: %d values, want %d", name, len(got), len(want))
	}
	for i := range got {
		if !(math.Abs(got[i]-want[i]) <= 1e-12*(1+math.Abs(want[i]))) && got[i] != want[i] {
			k.t.Errorf("%s: element %d is %.17g, want %.17g", name, i, got[i], want[i])
		}
	}
}

// [1 2; 3 4]·[5 6; 7 8] = [19 22; 43 50], under every storage of the operands.
func TestMatmulKnown(t *testing.T) {
	k := open(t)
	a, at := k.f64([]float64{1, 2, 3, 4}, 2, 2), k.f64([]float64{1, 3, 2, 4}, 2, 2)
	b, bt := k.f64([]float64{5, 6, 7, 8}, 2, 2), k.f64([]float64{5, 7, 6, 8}, 2, 2)
	bias := k.f64([]float64{0.5, -1})
	for _, c := range []device.MatmulArgs{{A: a, B: b}, {A: at, B: b, TransA: 1}, {A: a, B: bt, TransB: 1}, {A: at, B: bt, TransA: 1, TransB: 1}} {
		c.C = k.empty(2, 2)
		k.Matmul(c)
		k.want("product", c.C, 19, 22, 43, 50)
		c.Accumulate = 1
		k.Matmul(c)
		k.want("accumulated", c.C, 38, 44, 86, 100)
	}
	c := k.empty(2, 2)
	k.Matmul(device.MatmulArgs{C: c, A: a, B: b, Bias: bias})
	k.want("with bias", c, 19.5, 21, 43.5, 49)
	// A·B + bias = (0, 1): gelu(0) = 0, gelu(1) = Φ(1) = 0.8413447460685429.
	aux := k.empty(1, 2)
	c = k.empty(1, 2)
	k.Matmul(device.MatmulArgs{C: c, A: k.f64([]float64{1}, 1, 1), B: k.f64([]float64{-0.5, 2}, 1, 2), Bias: bias, Aux: aux, Epilogue: device.GeluErfEpilogue})
	k.want("gelu's input", aux, 0, 1)
	k.want("gelu", c, 0, 0.8413447460685429)
}

// LayerNorm of [1 2 3]: mean 2, variance 2/3, so ±√1.5; RMSNorm of [3 4]: rms √12.5.
func TestNormKnown(t *testing.T) {
	k := open(t)
	r := math.Sqrt(1.5)
	x, y := k.f64([]float64{1, 2, 3}, 1, 3), k.empty(1, 3)
	gamma, beta := k.f64([]float64{1, 2, 3}), k.f64([]float64{0, 10, 0})
	mean, rstd := k.empty(1), k.empty(1)
	k.NormForward(device.NormForwardArgs{Y: y, X: x, Gamma: gamma, Beta: beta, Mean: mean, Rstd: rstd})
	k.want("layer norm", y, -r, 10, 3*r)
	k.want("mean", mean, 2)
	k.want("rstd", rstd, r)
	// dy = (1,0,0): g = (1,0,0), x̂ = (−r,0,r), mean(g) = 1/3, mean(g·x̂) = −r/3:
	// dx = r·(1−1/3−1/2, −1/3, −1/3+1/2) = r/6·(1, −2, 1).
	dx, dgamma, dbeta := k.empty(1, 3), k.f64([]float64{1, 1, 1}), k.f64([]float64{1, 1, 1})
	k.NormBackward(device.NormBackwardArgs{DX: dx, DGamma: dgamma, DBeta: dbeta, DY: k.f64([]float64{1, 0, 0}, 1, 3), X: x, Gamma: gamma, Mean: mean, Rstd: rstd,
		Residual: k.f64([]float64{0, 0, 100}, 1, 3)})
	k.want("layer norm dx", dx, r/6, -r/3, 100+r/6)
	k.want("dgamma", dgamma, 1-r, 1, 1)
	k.want("dbeta", dbeta, 2, 1, 1)

	x, y = k.f64([]float64{3, 4}, 1, 2), k.empty(1, 2)
	k.NormForward(device.NormForwardArgs{Y: y, X: x, Gamma: k.f64([]float64{0, 1}), Rstd: rstd, Kind: device.RMSNormKind, OnePlus: 1})
	k.want("rms norm", y, 3/math.Sqrt(12.5), 8/math.Sqrt(12.5))
	k.NormForward(device.NormForwardArgs{Y: y, X: x, Gamma: k.f64([]float64{1, 1}), Rstd: rstd, Kind: device.RMSNormKind, Eps: 0.5})
	k.want("rms norm, eps inside the root", y, 3/math.Sqrt(13), 4/math.Sqrt(13))
}

// Each non-linearity at 0, at a large number (the identity or the square) and at
// 1; slopes at 0 (1/2 for all but the square) and at a large number.
func TestActivationKnown(t *testing.T) {
	k := open(t)
	s1, q1 := 1/(1+math.Exp(-1)), 1/(1+math.Exp(-1.702))
	for kind, want := range map[device.Activation]struct{ y, dx []float64 }{
		activations.GeluTanh:    {[]float64{0, 50, 0.8411919906082768}, []float64{0.5, 1}},
		activations.GeluErf:     {[]float64{0, 50, 0.8413447460685429}, []float64{0.5, 1}},
		activations.SquaredRelu: {[]float64{0, 2500, 1}, []float64{0, 100}},
		activations.Swiglu:      {[]float64{0, 250, 7 * s1}, []float64{1.5, 5}},
		activations.QuickGeglu:  {[]float64{0, 250, 7 * q1}, []float64{1.5, 5}},
	} {
		in := []float64{0, 50, 1}
		if kind.Gated() {
			in = append(in, 3, 5, 7)
		}
		x := k.f64(in, 1, int64(len(in)))
		y, dx := k.empty(1, 3), k.empty(1, int64(len(in)))
		k.ActivationForward(device.ActivationForwardArgs{Y: y, X: x, Kind: kind})
		k.want("activation", y, want.y...)
		k.ActivationBackward(device.ActivationBackwardArgs{DX: dx, DY: k.f64([]float64{1, 1, 1}, 1, 3), X: x, Kind: kind})
		got := k.values(dx)
		for i, w := range want.dx {
			if math.Abs(got[i]-w) > 1e-12*(1+w) {
				t.Errorf("slope of activation %d at %g: %g, want %g", kind, in[i], got[i], w)
			}
		}
		if kind.Gated() && math.Abs(got[4]-50) > 1e-12 { // dy·silu(50)
			t.Errorf("gate of activation %d: %g, want 50", kind, got[4])
		}
	}
}

// Position 0 turns by nothing; a quarter turn maps (a,b) to (−b,a); Inverse undoes it.
func TestRopeKnown(t *testing.T) {
	k := open(t)
	cos, sin := k.f64([]float64{1, 1, 0, 1}, 2, 2), k.f64([]float64{0, 0, 1, 0}, 2, 2)
	positions := k.i32(0, 1)
	in := []float64{1, 2, 3, 4, 9, 1, 2, 3, 4, 9}
	x := k.f64(in, 2, 1, 1, 5)
	args := device.RopeArgs{X: x, Cos: cos, Sin: sin, Positions: positions, RotDims: 4}
	k.Rope(args)
	k.want("halves", x, 1, 2, 3, 4, 9, -3, 2, 1, 4, 9)
	args.Inverse = 1
	k.Rope(args)
	k.want("halves and back", x, in...)
	args.Inverse, args.Interleaved = 0, 1
	k.Rope(args)
	k.want("neighbours", x, 1, 2, 3, 4, 9, -2, 1, 3, 4, 9)
}

func (k known) attention(a device.AttentionForwardArgs, sq, sk int64, q, key, v []float64) device.AttentionForwardArgs {
	a.Batch, a.Scale = 1, 1
	a.Q, a.K, a.V = k.f64(q, sq, 1, 1, 1), k.f64(key, sk, 1, 1, 1), k.f64(v, sk, 1, 1, 1)
	a.O, a.LSE = k.empty(sq, 1, 1, 1), k.empty(1, 1, sq)
	k.AttentionForward(a)
	return a
}

// With q = 0 all visible keys weigh the same, so outputs are means of values;
// with one visible key the output is its value.
func TestAttentionKnown(t *testing.T) {
	k := open(t)
	zero, v := []float64{0, 0, 0}, []float64{3, 6, 12}
	keys := []float64{1, 2, 3}
	ln2, ln3 := math.Ln2, math.Log(3)
	a := k.attention(device.AttentionForwardArgs{Window: -1}, 3, 3, zero, keys, v)
	k.want("causal", a.O, 3, 4.5, 7)
	k.want("causal lse", a.LSE, 0, ln2, ln3)
	a = k.attention(device.AttentionForwardArgs{Window: 1}, 3, 3, zero, keys, v)
	k.want("window of one key to the left", a.O, 3, 4.5, 9)
	a = k.attention(device.AttentionForwardArgs{Window: 0}, 3, 3, zero, keys, v)
	k.want("window of itself", a.O, v...)
	doc := k.of(device.I32, []float64{0, 1, 1}, 1, 3)
	a = k.attention(device.AttentionForwardArgs{Window: -1, DocStart: doc}, 3, 3, zero, keys, v)
	k.want("second document from row 1", a.O, 3, 6, 9)
	a = k.attention(device.AttentionForwardArgs{Window: -1, QOffset: 1}, 1, 3, []float64{0}, keys, v)
	k.want("one query at position 1 of a cache", a.O, 4.5)
	// slope ln 2: the key one to the left weighs half: (3 + 2·6)/3, (3 + 2·6 + 4·12)/7.
	a = k.attention(device.AttentionForwardArgs{Window: -1, Slopes: k.f64([]float64{ln2})}, 3, 3, zero, keys, v)
	k.want("ALiBi", a.O, 3, 5, 9)
	// q = (0, ln 2): weights 2 and 4 of keys 1, 2; lse = ln 6.
	a = k.attention(device.AttentionForwardArgs{Window: -1}, 2, 2, []float64{0, ln2}, []float64{1, 2}, []float64{3, 6})
	k.want("scores", a.O, 3, 5)
	k.want("scores lse", a.LSE, 0, math.Log(6))
}

// Two keys at weight 1/2, q = (0,0), k = (1,2), v = (3,6), dO = (0,1):
// O₁ = 4.5, dP = (3,6), dS = ½·(3−4.5, 6−4.5) = (−¾, ¾); dQ₁ = −¾·1+¾·2 = ¾;
// dK = dSᵀq = 0; dV = (½, ½).
func TestAttentionBackwardKnown(t *testing.T) {
	k := open(t)
	f := k.attention(device.AttentionForwardArgs{Window: -1}, 2, 2, []float64{0, 0}, []float64{1, 2}, []float64{3, 6})
	a := device.AttentionBackwardArgs{DQ: k.empty(2, 1, 1, 1), DK: k.empty(2, 1, 1, 1), DV: k.empty(2, 1, 1, 1), DO: k.f64([]float64{0, 1}, 2, 1, 1, 1), Forward: f}
	k.AttentionBackward(a)
	k.want("dq", a.DQ, 0, 0.75)
	k.want("dk", a.DK, 0, 0)
	k.want("dv", a.DV, 0.5, 0.5)
}

// Ids 5 and 6 of a shard that starts at 5; 4 and 7 belong to others.
func TestEmbeddingKnown(t *testing.T) {
	k := open(t)
	table, out := k.f64([]float64{1, 2, 3, 4}, 2, 2), k.empty(4, 2)
	tokens := k.i32(6, 4, 5, 7)
	k.EmbeddingForward(device.EmbeddingForwardArgs{Out: out, Table: table, IDs: tokens, Start: 5})
	k.want("rows", out, 3, 4, 0, 0, 1, 2, 0, 0)
	k.EmbeddingForward(device.EmbeddingForwardArgs{Out: out, Table: table, IDs: tokens, Start: 5, Accumulate: 1})
	k.want("rows twice", out, 6, 8, 0, 0, 2, 4, 0, 0)
	dtable := k.f64([]float64{10, 0, 0, 0}, 2, 2)
	k.EmbeddingBackward(device.EmbeddingBackwardArgs{DTable: dtable, DOut: k.f64([]float64{1, 2, 3, 4, 5, 6, 7, 8}, 4, 2), IDs: k.i32(5, 4, 5, 6), Start: 5})
	k.want("gradient", dtable, 16, 8, 7, 8)
}

// Logits (0, ln 3 | padding): max ln 3, Σ = 1/3 + 1, loss of column 0 = ln 4, softmax (¼, ¾).
func TestCrossEntropyKnown(t *testing.T) {
	k := open(t)
	logits := k.f64([]float64{0, math.Log(3), 99, 0, math.Log(3), 99}, 2, 3)
	labels := k.i32(7, 3) // the shard starts at 7; the second label is another rank's
	top, total, target, loss := k.empty(2), k.empty(2), k.empty(2), k.empty(2)
	k.CrossEntropyStats(device.CrossEntropyStatsArgs{Logits: logits, Labels: labels, Max: top, Sum: total, Target: target, Start: 7, Columns: 2})
	k.want("max", top, math.Log(3), math.Log(3))
	k.want("sum", total, 4.0/3, 4.0/3)
	k.want("target", target, 0, 0)
	k.CrossEntropyLoss(device.CrossEntropyLossArgs{Loss: loss, Max: top, Sum: total, Target: target})
	k.want("loss", loss, math.Log(4), math.Log(4))
	d := k.empty(2, 3)
	g := device.CrossEntropyGradArgs{D: d, Logits: logits, Labels: labels, Max: top, Sum: total, Weight: k.f64([]float64{1, 2}), Start: 7, Columns: 2}
	k.CrossEntropyGrad(g)
	k.want("gradient", d, -0.75, 0.75, 0, 0.5, 1.5, 0)
	g.Scale = k.f64([]float64{8})
	k.CrossEntropyGrad(g)
	k.want("scaled gradient", d, -6, 6, 0, 4, 12, 0)
}

// The mask of an element is the word the contract names, wherever the element lies.
func TestDropoutKnown(t *testing.T) {
	k := open(t)
	const rate, positions, samples, h = 0.25, 7, 2, 6
	step := k.of(device.I64, []float64{3})
	drop := device.Dropout{Stream: 11, Step: step, Samples: k.i32(40, 5), Rate: rate, Position: 100, Channel: 9}
	ones := make([]float64, positions*samples*h)
	for i := range ones {
		ones[i] = 1
	}
	x, out := k.f64(ones, positions*samples, h), k.empty(positions*samples, h)
	var want []float64
	for p := range uint32(positions) {
		for _, sample := range []uint32{40, 5} {
			for c := uint32(9); c < 9+h; c++ {
				word := device.Philox(device.StepKey(11, 3), [4]uint32{c / 4, 100 + p, sample, 0})[c%4]
				if float64(word)/(1<<32) < rate {
					want = append(want, 0)
				} else {
					want = append(want, 4.0/3)
				}
			}
		}
	}
	k.DropoutAdd(device.DropoutAddArgs{Out: out, X: x, Drop: drop})
	k.want("mask", out, want...)
	k.DropoutBackward(device.DropoutBackwardArgs{DX: out, DY: x, Drop: drop})
	k.want("the same mask backward", out, want...)
	k.DropoutAdd(device.DropoutAddArgs{Out: out, X: x, Bias: k.f64([]float64{1, 1, 1, 1, 1, 1}), Residual: x, Drop: drop})
	for i := range want {
		want[i] = 2*want[i] + 1
	}
	k.want("residual + drop(x + bias)", out, want...)
}

// Of 2^16 elements a quarter is dropped: 16384 ± 5σ, σ = √(2^16·¼·¾) = 111.
func TestDropoutFrequency(t *testing.T) {
	k := open(t)
	x, out := k.Arena.Alloc(device.Workspace, device.F64, 256, 256), k.empty(256, 256)
	k.Fill(x, 1)
	k.DropoutAdd(device.DropoutAddArgs{Out: out, X: x, Drop: device.Dropout{Stream: 1, Step: k.of(device.I64, []float64{0}), Samples: k.i32(0, 1), Rate: 0.25}})
	dropped := 0
	for _, v := range k.values(out) {
		if v == 0 {
			dropped++
		}
	}
	if dropped < 16384-555 || dropped > 16384+555 {
		t.Errorf("%d of 65536 dropped at rate 1/4", dropped)
	}
}

// Attention drops after the softmax: key k is the mask's channel, the head its
// last counter, and the rest of the row keeps its denominator.
func TestAttentionDropoutKnown(t *testing.T) {
	k := open(t)
	drop := device.Dropout{Stream: 5, Step: k.of(device.I64, []float64{9}), Samples: k.i32(77), Rate: 0.5, Position: 20, Channel: 3}
	a := k.attention(device.AttentionForwardArgs{Window: -1, Drop: drop}, 3, 3, []float64{0, 0, 0}, []float64{1, 1, 1}, []float64{1, 10, 100})
	var want []float64
	for i := range uint32(3) {
		o := 0.0
		for c, v := range []float64{1, 10, 100}[:i+1] {
			if device.Philox(device.StepKey(5, 9), [4]uint32{0, 20 + i, 77, 3})[c] >= 1<<31 {
				o += 2 * v / float64(i+1)
			}
		}
		want = append(want, o)
	}
	k.want("attention dropout", a.O, want...)
	k.want("its lse", a.LSE, 0, math.Ln2, math.Log(3))
}

func TestElementwiseKnown(t *testing.T) {
	k := open(t)
	x := k.f64([]float64{1, 2, 3, 4, 5, 6}, 3, 2)
	out := k.f64([]float64{100, 0})
	k.ColumnSum(device.ColumnSumArgs{Out: out, X: x})
	k.want("column sum", out, 109, 12)
	half := k.of(device.BF16, []float64{1, 1, 1, 1, 1, 1.0 / 3}, 3, 2) // 1/3 is 171/512 in bf16
	k.Add(x, x, half)
	k.want("sum in place", x, 2, 3, 4, 5, 6, 6+171.0/512)
	k.Fill(x, -2)
	k.want("fill", x, -2, -2, -2, -2, -2, -2)
	dst := k.of(device.F16, []float64{7, 7, 7, 7})
	k.Copy(device.Strided(dst.Data, device.F16, []int64{2}, []int64{2}), k.f64([]float64{1e9, 2049})) // 2049 ties to 2048
	k.want("strided rounding copy", dst, math.Inf(1), 7, 2048, 7)
}

// Word i of the stream, top 24 bits; i/4 beyond 2^32 is out of a test's reach.
func TestUniformKnown(t *testing.T) {
	k := open(t)
	out := k.empty(6)
	k.Uniform(device.UniformArgs{Out: out, Step: k.of(device.I64, []float64{2}), Stream: 8})
	var want []float64
	for i := range uint32(6) {
		want = append(want, float64(device.Philox(device.StepKey(8, 2), [4]uint32{i / 4})[i%4]>>8)/(1<<24))
	}
	k.want("uniform", out, want...)
}

func TestStatsKnown(t *testing.T) {
	k := open(t)
	out := k.f64([]float64{1, 1, 1})
	k.GradStats(out, k.of(device.F16, []float64{3, 0, -4, math.Copysign(0, -1)}), device.Tensor{})
	k.want("finite", out, 26, 1, 3)
	k.GradStats(out, k.of(device.F32, []float64{math.NaN(), math.Inf(1), math.Inf(-1)}), device.Tensor{})
	if got := k.values(out); got[device.StatNonFinite] != 4 || got[device.StatZeros] != 3 || !math.IsNaN(got[device.StatSquares]) {
		t.Errorf("non-finite: %v", got)
	}
	out = k.f64([]float64{0, 0, 0})
	k.GradStats(out, k.of(device.F32, []float64{1, 2, 3, 0, 4, 5, 0}), k.segments(0, 1, 2, 4, 5, 6)) // 1, 3, 0, 5
	k.want("segments", out, 35, 0, 1)
	sums := k.f64([]float64{10, 20})
	k.WeightedSum(device.WeightedSumArgs{Out: sums, X: k.f64([]float64{1, 2, 3}), W: k.f64([]float64{1, 0, 2})})
	k.want("weighted sum", sums, 17, 23)
}

// Σx² = 100 at loss scale 2: norm 5; clipped to 1 the factor is 1/(5+1e-6)/2.
func TestGradScaleKnown(t *testing.T) {
	k := open(t)
	hyper := k.f64([]float64{1, 2, 3, 4, 2, 0, 0, 0})
	stats := k.f64([]float64{100, 0, 0})
	k.GradScale(device.GradScaleArgs{Hyper: hyper, Stats: stats, MaxNorm: 1})
	k.want("clipped", hyper, 1, 2, 3, 4, 2, 0.5/5.000001, 0, 5)
	k.GradScale(device.GradScaleArgs{Hyper: hyper, Stats: stats, MaxNorm: 6})
	k.want("small enough", hyper, 1, 2, 3, 4, 2, 0.5, 0, 5)
	k.GradScale(device.GradScaleArgs{Hyper: hyper, Stats: k.f64([]float64{4, 3, 0})})
	k.want("no limit, not finite", hyper, 1, 2, 3, 4, 2, 0.5, 1, 1)
	k.GradScale(device.GradScaleArgs{Hyper: hyper, Stats: stats, Others: k.f64([]float64{4, 0, 9}), MaxNorm: 6})
	k.want("with others, finite", hyper, 1, 2, 3, 4, 2, 0.5, 0, 5)
	k.GradScale(device.GradScaleArgs{Hyper: hyper, Stats: stats, Others: k.f64([]float64{4, 1, 0}), MaxNorm: 6})
	k.want("others not finite", hyper, 1, 2, 3, 4, 2, 0.5, 1, 5)
}

// AdamW's first step is lr·sign(g) plus the decay lr·wd·p; M and V are (1−β)g, (1−β)g².
func TestAdamWKnown(t *testing.T) {
	k := open(t)
	hyper := k.f64([]float64{0.1, 0.25, 1 - 0.5, 1 - 0.75, 1, 0.5, 0, 0})
	p, g := k.f64([]float64{8, 8, 0}), k.f64([]float64{6, -2, 0})
	m, v, model := k.f64([]float64{0, 0, 0}), k.f64([]float64{0, 0, 0}), k.of(device.BF16, []float64{1, 1, 1})
	a := device.AdamWArgs{Param: p, Grad: g, M: m, V: v, Model: model, Hyper: hyper, Beta1: 0.5, Beta2: 0.75, Eps: 1e-30, Mults: k.f64([]float64{1, 2}).Reshape(1, 2)}
	k.AdamW(a)
	k.want("param", p, 8-0.1-0.4, 8+0.1-0.4, 0)
	k.want("m", m, 1.5, -0.5, 0)
	k.want("v", v, 0.25*9, 0.25, 0)
	k.want("model", model, 7.5, 7.6875, 0) // 7.7 between 7.6875 and 7.71875
	setHyper(k, hyper, device.HyperSkip, 1)
	k.AdamW(a)
	k.want("skipped", p, 7.5, 7.7, 0)
}

// Each segment has its own rate and decay; what lies between is left alone.
func TestSegmentsKnown(t *testing.T) {
	k := open(t)
	hyper := k.f64([]float64{0.1, 0.25, 1, 1, 1, 1, 0, 0})
	p, g := k.f64([]float64{8, 8, 8, 8}), k.f64([]float64{1, 1, 1, 1})
	a := device.SGDArgs{Param: p, Grad: g, Hyper: hyper, Segments: k.segments(0, 1, 2, 4), Mults: k.f64([]float64{1, 0, 2, 1}).Reshape(2, 2)}
	k.SGD(a)
	k.want("sgd", p, 7.9, 8, 8-0.2*3, 8-0.2*3)
	m, v := k.f64([]float64{0, 0, 0, 0}), k.f64([]float64{0, 0, 0, 0})
	p = k.f64([]float64{8, 8, 8, 8})
	k.AdamW(device.AdamWArgs{Param: p, Grad: g, M: m, V: v, Hyper: hyper, Segments: a.Segments, Mults: a.Mults, Eps: 1e-30})
	k.want("adamw", p, 7.9, 8, 8-0.2-0.4, 8-0.2-0.4)
	k.want("m", m, 1, 0, 1, 1)
}

// segments is a table of them.
func (k known) segments(at ...int64) device.Tensor {
	t := k.Arena.Alloc(device.Workspace, device.I64, int64(len(at)/2), 2)
	device.WriteSlice(k.Device, t, at)
	return t
}

// Two steps of torch.optim.SGD by hand: g = 2·0.5 + 0.25·p, buffer μ·buffer + g.
func TestSGDKnown(t *testing.T) {
	k := open(t)
	hyper := k.f64([]float64{1, 0.25, 0, 0, 1, 0.5, 0, 0})
	p, g, m := k.f64([]float64{8}), k.f64([]float64{2}), k.f64([]float64{0})
	a := device.SGDArgs{Param: p, Grad: g, Momentum: m, Hyper: hyper, Mu: 0.5, Mults: k.f64([]float64{0.5, 1}).Reshape(1, 2)}
	k.SGD(a) // g = 1 + 2 = 3, p = 8 − 0.5·3
	k.want("first", p, 6.5)
	k.SGD(a) // g = 1 + 1.625, buffer 1.5 + 2.625 = 4.125, p = 6.5 − 2.0625
	k.want("second", p, 4.4375)
	k.want("momentum", m, 4.125)
	a.Momentum, a.Mu = device.Tensor{}, 0
	k.SGD(a) // g = 1 + 1.109375
	k.want("no momentum", p, 4.4375-0.5*2.109375)
	setHyper(k, hyper, device.HyperSkip, 1)
	k.SGD(a)
	k.want("skipped", p, 4.4375-0.5*2.109375)
}

func setHyper(k known, hyper device.Tensor, index int64, value float64) {
	k.Fill(hyper.Slice(0, index, 1), value)
}

// Claim: with a softmax over all experts the best groups are those with the largest sums of
// probabilities, not of logits. Source: Megatron's group_limited_topk, which is given
// softmax(logits). Worked out by hand: e^3 + e^-3 = 20.1 is more than e^1.2 + e^1.1 = 6.3,
// 3 - 3 = 0 is less than 1.2 + 1.1.
func TestGroupsOfProbabilities(t *testing.T) {
	k := open(t)
	total := math.Exp(3) + math.Exp(-3) + math.Exp(1.2) + math.Exp(1.1)
	for score, want := range map[device.RouterScore][]float64{device.SoftmaxOfAll: {0, 1}, device.SoftmaxOfChosen: {2, 3}} {
		weights, experts := k.empty(1, 2), k.of(device.I32, []float64{9, 9}, 1, 2)
		k.RouterForward(device.RouterForwardArgs{Weights: weights, Experts: experts, Logits: k.f64([]float64{3, -3, 1.2, 1.1}, 1, 4),
			Rule: device.RouterRule{Score: score, Groups: 2, GroupTopK: 1, GroupBest: 2, Scaling: 1}})
		k.want("experts", experts, want...)
		if score == device.SoftmaxOfAll {
			k.want("weights", weights, math.Exp(3)/total, math.Exp(-3)/total)
		}
	}
}
