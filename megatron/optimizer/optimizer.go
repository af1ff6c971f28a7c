package optimizer

import (
	"cmp"
	"math"
	"unsafe"

	"monotron/csrc/device"
	"monotron/mpu"
	"monotron/mpu/comm"
)

// Optimizer holds the memory of a rank's parameters, reduces their gradients and
// updates them. See the package's doc.
type Optimizer struct {
	device   *device.Device
	config   Config
	groups   Groups
	params   []*mpu.Param
	families []*family
	buckets  []*bucket // of all families
	bucketOf map[*mpu.Param]*bucket
	segments []*segment              // of trained parameters, in the order of params
	shares   map[*mpu.Param]*segment // of all params
	runs     []*run                  // what is updated here, a call each
	matrices []*matrix               // what Muon updates, in the order of the model
	counted  []counted               // what the norm is of, a call each
	inFlight *bucket                 // its gradients are being reduced, ZeRO-2 and 3

	// What ranks count is added up over the world, not over one copy of the model:
	// ranks have shards, or families that other ranks share differently.
	worldwide bool

	readback  device.Tensor // f64: stats, Extra and hypers, a piece each: what the host reads of a step, at once
	clips     []clip        // of all gradients but those with OwnClip; with Config.OwnClip then of these
	rate      device.Tensor // f32 [1]: that of --decoupled-lr; not given without
	stats     device.Tensor // f64 [Stats]: the first clip's
	Extra     device.Tensor // f64 [Extras]: what others want the host to read with a step's result
	Steps     int64         // updates made, for Adam's bias correction
	away      *away         // what is offloaded; nil: nothing
	ahead     ahead         // what is brought before it is used, ZeRO-3
	exact     *exact        // nil: gradients have the order of the layout
	averaging *averaging    // nil: values are the main parameters, or these rounded
	coder     *coder        // nil: moments are f32
	Graph     *device.Graph // of the update, where the rank is alone; nil: op by op
}

// New gives params their memory: values of dtype, and where they are trained f32 main
// gradients, main parameters where dtype is not f32, and moments; all of it, or the rank's
// shards. Initial values are not set. All ranks of a family's Data have equal params.
func New(d *device.Device, c Config, params []*mpu.Param, dtype device.DType, g Groups, s Sharding) *Optimizer {
	if c.Kind == Adam8 {
		s.align = device.CodeBlock
	}
	o := &Optimizer{device: d, config: c, groups: g, params: params, families: g.families(params, s), bucketOf: map[*mpu.Param]*bucket{},
		worldwide: len(g.Families) > 1 || s.of(g.Families[mpu.Dense]).Strategy != NoShard}
	o.allocateReadback()
	o.newExact()
	o.coder, o.averaging = o.newCoder(), o.newAveraging()
	o.allocate(dtype, s.Offloaded)
	return o
}

// clip is gradients that are clipped by one norm.
type clip struct {
	stats device.Tensor // f64 [Stats]
	hyper device.Tensor // f32 [Hypers]
	apart device.Tensor // the same with the rate of Config.apart; not given without
}

// allocateReadback allocates what the host exchanges with a step: the clips' statistics, Extra, their hypers.
func (o *Optimizer) allocateReadback() {
	clips := int64(1)
	if o.config.OwnClip {
		clips = 2
	}
	d := o.device
	o.readback = d.Arena.Zeroed(device.Optimizer, device.F64, (2*clips+1)*readbackPiece)
	o.Extra = o.readback.Slice(0, clips*readbackPiece, Extras)
	for i := range clips {
		c := clip{stats: o.readback.Slice(0, i*readbackPiece, device.Stats), hyper: device.View(o.readback.Slice(0, (clips+1+i)*readbackPiece, readbackPiece).Data, device.F32, device.Hypers)}
		if o.config.apart() {
			c.apart = d.Arena.Zeroed(device.Optimizer, device.F32, device.Hypers)
		}
		o.clips = append(o.clips, c)
	}
	if o.config.apart() {
		o.rate = d.Arena.Zeroed(device.Optimizer, device.F32, 1)
	}
	o.stats = o.clips[0].stats
}

// clipOf is by which norm a parameter's gradient is clipped.
func (o *Optimizer) clipOf(p *mpu.Param) int {
	if o.config.OwnClip && p.OwnClip {
		return 1
	}
	return 0
}

// others are the statistics of the other clip; none: there is one.
func (o *Optimizer) others(i int) device.Tensor {
	if len(o.clips) == 1 {
		return device.Tensor{}
	}
	return o.clips[1-i].stats
}

// Extras is how many numbers others can have read with a step's result.
const Extras = 3

// readbackPiece is the length of each piece of the readback, f64: each begins aligned.
const readbackPiece = 8

// counts reports whether this rank counts what it has of a parameter: each global
// element is counted once in the group of sumStats.
func (o *Optimizer) counts(p *mpu.Param) bool {
	if o.worldwide {
		return o.bucketOf[p].family.once(p)
	}
	return p.Owner
}

// StepArgs change from step to step.
type StepArgs struct {
	LR, WeightDecay float64
	DecoupledLR     float64 // of word embedding and output layer, with --decoupled-lr
	Factor          float64 // the sum of the ranks' gradients carries it: loss scale, and all ranks' tokens where the loss is per token
	Reduced         func()  // called when the gradients are complete; nil: nobody asks
	Enqueued        func()  // called when all is enqueued, before the host waits for the result; nil: nobody asks
}

// asKernel is a setting as the kernels see it. The bias correction must be of the
// β that the moments are made with: in f32, 1−0.999 is 1.3e-5 off.
func asKernel(beta float64) float64 { return float64(float32(beta)) }

// Result is what a step reports; the same on every rank of the world.
type Result struct {
	GradNorm  float64 // global L2 norm before clipping, without the factor
	OwnNorm   float64 // with Config.OwnClip: the same of gradients with OwnClip, which GradNorm leaves out
	Skipped   bool    // a gradient was not finite somewhere: nothing changed anywhere
	Again     bool    // of sums on grids: one did not fit somewhere, and nothing changed but the grids. The step is to be made again
	NonFinite int64
	Zeros     int64 // exact zeros among the gradients

	Extra [Extras]float64 // Optimizer.Extra's values
}

// Step completes the gradients over the ranks, clips by the global norm and
// updates every parameter, or nothing when a gradient is not finite. Every rank
// of the world calls it. The host waits for the device once, for the result.
func (o *Optimizer) Step(a StepArgs) (Result, error) {
	// Complete the gradients: give back what ZeRO-3 has gathered, then sum over ranks.
	if err := o.Rest(); err != nil {
		return Result{}, err
	}
	if err := o.finalize(); err != nil {
		return Result{}, err
	}
	// Sums on grids: too coarse or too narrow a grid on any rank means that the step is made again with others.
	if o.exact != nil {
		if fit, err := o.settle(); err != nil || !fit {
			return Result{Again: true}, err
		}
		o.readSums()
	}
	if a.Reduced != nil {
		a.Reduced()
	}
	// Norm, clipping and update, without waiting for the host, so that they can be one graph.
	if err := o.meet(); err != nil {
		return Result{}, err
	}
	o.prepare(a)
	if err := o.Graph.Run(o.clipAndUpdate); err != nil {
		return Result{}, err
	}
	// Updated shards go to the ranks that hold all values.
	if err := o.gatherAll(); err != nil {
		return Result{}, err
	}
	if a.Enqueued != nil {
		a.Enqueued()
	}
	return o.result(), o.device.Err()
}

// clipAndUpdate is what a step does on the device; what changes from step to step is in
// hyper, and rate.
func (o *Optimizer) clipAndUpdate() error {
	d := o.device
	// Statistics of this rank's gradients (squares, non-finite values, zeros), then of all ranks.
	for _, c := range o.clips {
		d.Fill(c.stats, 0)
	}
	for _, c := range o.counted {
		d.GradStats(o.clips[c.clip].stats, c.grads, c.segments)
	}
	if err := cmp.Or(o.statsOffloaded(), o.sumStats()); err != nil {
		return err
	}
	// The same norm bit for bit in every layout.
	if o.exact != nil {
		if err := o.exactSquares(); err != nil {
			return err
		}
	}
	// hyper: clip factor, and whether the step is skipped, which every kernel below reads on the device.
	for i, c := range o.clips {
		d.GradScale(device.GradScaleArgs{Hyper: c.hyper, Stats: c.stats, Others: o.others(i), MaxNorm: float32(o.config.ClipGrad)})
		if c.apart.Given() {
			d.Copy(c.apart, c.hyper)
			d.Copy(c.apart.Slice(0, device.HyperLR, 1), o.rate)
		}
	}
	// Elementwise updates, then those of matrices (Muon), then what is offloaded, bucket by bucket.
	for _, r := range o.runs {
		o.update(r)
	}
	for _, m := range o.matrices {
		if err := o.updateMatrix(m); err != nil {
			return err
		}
	}
	return o.updateOffloaded()
}

// prepare gives the kernels what changes this step.
func (o *Optimizer) prepare(a StepArgs) {
	t := float64(o.Steps + 1)
	var hyper [device.Hypers]float32
	hyper[device.HyperLR], hyper[device.HyperWeightDecay] = float32(a.LR), float32(a.WeightDecay)
	hyper[device.HyperCorrection1] = float32(1 - math.Pow(asKernel(o.config.AdamBeta1), t))
	hyper[device.HyperCorrection2] = float32(1 - math.Pow(asKernel(o.config.AdamBeta2), t))
	hyper[device.HyperLossScale] = float32(a.Factor)
	for _, c := range o.clips {
		device.WriteSlice(o.device, c.hyper, hyper[:])
	}
	rate := a.DecoupledLR
	if o.config.AdapterUpRatio > 0 {
		rate = a.LR * o.config.AdapterUpRatio
	}
	if o.rate.Given() {
		device.WriteSlice(o.device, o.rate, []float32{float32(rate)})
	}
	if o.averaging != nil {
		o.prepareAverage(t, a.LR, rate, a.WeightDecay)
	}
	if o.coder != nil {
		o.prepareRates(t, a.LR, rate, a.WeightDecay)
	}
}

// statsGroup is who has counted each global element once: the world, or one copy of the model.
func (o *Optimizer) statsGroup() *comm.Group {
	if o.worldwide {
		return o.groups.World
	}
	return o.groups.Families[mpu.Dense].Model
}

// sumStats adds up what its ranks have counted.
func (o *Optimizer) sumStats() error {
	g := o.statsGroup()
	if size(g) == 1 {
		return nil
	}
	all := o.stats
	if n := int64(len(o.clips)); n > 1 {
		all = o.readback.Slice(0, 0, n*readbackPiece)
	}
	return g.AllReduce(all, comm.Sum).Wait()
}

func (o *Optimizer) result() Result {
	stats := device.ReadSlice[float64](o.device, o.readback)
	clips := len(o.clips)
	var norms [2]float64
	r := Result{Extra: [Extras]float64(stats[clips*readbackPiece:])}
	for i := range clips {
		own := stats[i*readbackPiece:]
		hyper := unsafe.Slice((*float32)(unsafe.Pointer(&stats[(clips+1+i)*readbackPiece])), device.Hypers)
		norms[i], r.Skipped = float64(hyper[device.HyperGradNorm]), hyper[device.HyperSkip] != 0
		r.NonFinite, r.Zeros = r.NonFinite+int64(own[device.StatNonFinite]), r.Zeros+int64(own[device.StatZeros])
	}
	r.GradNorm, r.OwnNorm = norms[0], norms[1]
	if !r.Skipped {
		o.Steps++
		if o.averaging != nil {
			o.averaged()
		}
	}
	return r
}

// ParamsNorm is the L2 norm of the main parameters of the complete model. Every
// rank of the world calls it.
func (o *Optimizer) ParamsNorm() (float64, error) {
	d := o.device
	d.Fill(o.stats, 0)
	for _, s := range o.segments {
		if o.counts(s.param) {
			o.statsOf(s.main)
		}
	}
	if err := o.sumStats(); err != nil {
		return 0, err
	}
	return math.Sqrt(device.ReadSlice[float64](d, o.stats)[device.StatSquares]), nil
}

// FirstNonFinite names the first parameter with a gradient that is not finite
// among those this rank updates; "": none.
func (o *Optimizer) FirstNonFinite() string {
	d := o.device
	for _, s := range o.segments {
		d.Fill(o.stats, 0)
		o.statsOf(s.grad)
		if device.ReadSlice[float64](d, o.stats)[device.StatNonFinite] > 0 {
			return s.param.Name
		}
	}
	return ""
}
