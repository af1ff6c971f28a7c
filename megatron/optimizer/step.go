package optimizer

import (
	"cmp"
	"math"
	"unsafe"

	"monotron/csrc/device"
	"monotron/mpu/comm"
)

// StepArgs change from step to step.
type StepArgs struct {
	LR, WeightDecay float64
	DecoupledLR     float64 // of word embedding and output layer, with --decoupled-lr
	Factor          float64 // the sum of the ranks' gradients carries it: loss scale, and all ranks' tokens where the loss is per token
	Reduced         func()  // called when the gradients are complete; nil: nobody asks
	Enqueued        func()  // called when all is enqueued, before the host waits for the result; nil: nobody asks
}

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

// others are the statistics of the other clip; none: there is one.
func (o *Optimizer) others(i int) device.Tensor {
	if len(o.clips) == 1 {
		return device.Tensor{}
	}
	return o.clips[1-i].stats
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
