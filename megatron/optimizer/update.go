package optimizer

import (
	"math"
	"strings"

	"monotron/csrc/device"
	"monotron/mpu"
)

// Optimizer holds the moments of a rank's parameters and updates them.
type Optimizer struct {
	device *device.Device
	config Config
	params []*mpu.Param
	m, v   []device.Tensor // f32, as the parameters; SGD: momentum in m
	grads  device.Tensor   // the buffer all main gradients lie in
	hyper  device.Tensor   // f32 [Hypers]
	apart  device.Tensor   // the same with the rate of --decoupled-lr; not given without
	stats  device.Tensor   // f64 [Stats]
	Steps  int64           // updates made, for Adam's bias correction
}

// New gives params, whose gradients lie in the buffer grads, their moments.
func New(d *device.Device, c Config, params []*mpu.Param, grads device.Tensor) *Optimizer {
	o := &Optimizer{device: d, config: c, params: params, grads: grads,
		hyper: d.Arena.Zeroed(device.Optimizer, device.F32, device.Hypers), stats: d.Arena.Zeroed(device.Optimizer, device.F64, device.Stats)}
	if c.DecoupledLR > 0 {
		o.apart = d.Arena.Zeroed(device.Optimizer, device.F32, device.Hypers)
	}
	moment := func(p *mpu.Param) device.Tensor { return d.Arena.Zeroed(device.Optimizer, p.Main.DType, p.Shape...) }
	for _, p := range params {
		if c.Kind == Adam || c.SGDMomentum != 0 {
			o.m = append(o.m, moment(p))
		}
		if c.Kind == Adam {
			o.v = append(o.v, moment(p))
		}
	}
	return o
}

// ZeroGrad clears all main gradients.
func (o *Optimizer) ZeroGrad() { o.device.Fill(o.grads, 0) }

// StepArgs change from step to step.
type StepArgs struct {
	LR, WeightDecay float64
	DecoupledLR     float64 // of word embedding and output layer, with --decoupled-lr
	Factor          float64 // the gradients carry it: loss scale, and tokens where the loss is per token
	CountZeros      bool
}

// asKernel is a setting as the kernels see it. The bias correction must be of the
// β that the moments are made with: in f32, 1−0.999 is 1.3e-5 off.
func asKernel(beta float64) float64 { return float64(float32(beta)) }

// Result is what a step tells.
type Result struct {
	GradNorm  float64 // global L2 norm before clipping, without the factor
	Skipped   bool    // a gradient was not finite: nothing changed
	NonFinite int64
	Zeros     int64 // exact zeros among the gradients
}

// Step clips by the global norm and updates every parameter, or nothing when a
// gradient is not finite.
func (o *Optimizer) Step(a StepArgs) Result {
	d, t := o.device, float64(o.Steps+1)
	var hyper [device.Hypers]float32
	hyper[device.HyperLR], hyper[device.HyperWeightDecay] = float32(a.LR), float32(a.WeightDecay)
	hyper[device.HyperCorrection1] = float32(1 - math.Pow(asKernel(o.config.AdamBeta1), t))
	hyper[device.HyperCorrection2] = float32(1 - math.Pow(asKernel(o.config.AdamBeta2), t))
	hyper[device.HyperLossScale] = float32(a.Factor)
	device.WriteSlice(d, o.hyper, hyper[:])

	d.Fill(o.stats, 0)
	for _, p := range o.params {
		if p.Owner {
			d.GradStats(o.stats, p.Grad)
		}
	}
	d.GradScale(device.GradScaleArgs{Hyper: o.hyper, Stats: o.stats, MaxNorm: float32(o.config.ClipGrad)})
	if o.apart.Given() {
		d.Copy(o.apart, o.hyper)
		device.WriteSlice(d, o.apart.Slice(0, device.HyperLR, 1), []float32{float32(a.DecoupledLR)})
	}
	for i, p := range o.params {
		o.update(i, p)
	}
	return o.result()
}

func (o *Optimizer) result() Result {
	hyper := device.ReadSlice[float32](o.device, o.hyper)
	stats := device.ReadSlice[float64](o.device, o.stats)
	r := Result{GradNorm: float64(hyper[device.HyperGradNorm]), Skipped: hyper[device.HyperSkip] != 0,
		NonFinite: int64(stats[device.StatNonFinite]), Zeros: int64(stats[device.StatZeros])}
	if !r.Skipped {
		o.Steps++
	}
	return r
}

func (o *Optimizer) update(i int, p *mpu.Param) {
	wd, hyper := float32(1), o.hyper
	if p.NoDecay && !(o.config.DecayQKNorm && isQKNorm(p.Name)) {
		wd = 0
	}
	if o.apart.Given() && isVocabulary(p.Name) {
		hyper = o.apart
	}
	var model device.Tensor
	if p.Main.Data != p.Value.Data {
		model = p.Value
	}
	if o.config.Kind == SGD {
		a := device.SGDArgs{Param: p.Main, Grad: p.Grad, Model: model, Hyper: hyper, Mu: float32(o.config.SGDMomentum), LRMult: 1, WDMult: wd}
		if o.m != nil {
			a.Momentum = o.m[i]
		}
		o.device.SGD(a)
		return
	}
	o.device.AdamW(device.AdamWArgs{Param: p.Main, Grad: p.Grad, M: o.m[i], V: o.v[i], Model: model, Hyper: hyper,
		Beta1: float32(o.config.AdamBeta1), Beta2: float32(o.config.AdamBeta2), Eps: float32(o.config.AdamEps), LRMult: 1, WDMult: wd})
}

// isVocabulary names what --decoupled-lr moves: word embedding and output layer.
func isVocabulary(name string) bool {
	return name == "embedding.word_embeddings.weight" || name == "output_layer.weight"
}

// isQKNorm names what --apply-wd-to-qk-layernorm lets decay.
func isQKNorm(name string) bool {
	return strings.Contains(name, ".q_layernorm.") || strings.Contains(name, ".k_layernorm.")
}

// ParamsNorm is the L2 norm of the master parameters.
func (o *Optimizer) ParamsNorm() float64 {
	d := o.device
	d.Fill(o.stats, 0)
	for _, p := range o.params {
		if p.Owner {
			d.GradStats(o.stats, p.Main)
		}
	}
	return math.Sqrt(device.ReadSlice[float64](d, o.stats)[device.StatSquares])
}

// Prefixes of a checkpoint's optimizer tensors.
const (
	StoredMain  = "optimizer.main."
	StoredExpM  = "optimizer.exp_avg."
	StoredExpV  = "optimizer.exp_avg_sq."
	StoredModel = "model."
)

// Stored lists what a checkpoint keeps of the optimizer: moments, and masters
// where they are not the values themselves.
func (o *Optimizer) Stored() []mpu.Stored {
	var all []mpu.Stored
	for i, p := range o.params {
		if p.Main.Data != p.Value.Data {
			all = append(all, p.Stored(StoredMain, p.Main))
		}
		if o.m != nil {
			all = append(all, p.Stored(StoredExpM, o.m[i]))
		}
		if o.v != nil {
			all = append(all, p.Stored(StoredExpV, o.v[i]))
		}
	}
	return all
}
