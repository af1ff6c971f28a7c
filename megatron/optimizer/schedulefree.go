package optimizer

import (
	"math"

	"monotron/csrc/device"
	"monotron/internal/elementary"
	"monotron/mpu"
)

// ScheduleFree keeps of each element an average x, which is the main parameter, a sequence z of steps, and
// AdamW's second moment. Values are x, rounded, whenever nobody trains: ZeroGrad makes them y = β1·x +
// (1−β1)·z, where gradients are taken, and Step makes them x again, also where it changes nothing. So
// evaluations, samples, checkpoints and whatever reads them see the average.

// averaging is what the average needs in addition to the step's hypers.
type averaging struct {
	rates [2]device.Tensor // f64 [device.Rates]: of all parameters, and of those with a rate of their own
	state device.Tensor    // f64 [2]: sum of the weights of all steps, largest learning rate so far
	next  [2]float64       // the same after this step, unless it is skipped
}

// newAveraging is nil for other optimizers.
func (o *Optimizer) newAveraging() *averaging {
	if o.config.Kind != ScheduleFree {
		return nil
	}
	a := &averaging{state: o.device.Arena.Zeroed(device.Optimizer, device.F64, 2)}
	for i := range a.rates {
		a.rates[i] = o.device.Arena.Zeroed(device.Optimizer, device.F64, device.Rates)
	}
	return a
}

// prepareAverage gives the device the rates of step t, and the weight of its z in the average.
func (o *Optimizer) prepareAverage(t, lr, apart, decay float64) {
	a, c := o.averaging, &o.config
	sum, most := 0.0, 0.0
	if !o.device.Counts() {
		state := device.ReadSlice[float64](o.device, a.state)
		sum, most = state[0], state[1]
	}
	most = max(most, lr)
	weight := float64(elementary.Pow(t, c.AveragePower) * elementary.Pow(most, c.AverageLRPower))
	a.next = [2]float64{sum + weight, most}
	share := 0.0
	if a.next[0] > 0 {
		share = weight / a.next[0]
	}
	for i, lr := range []float64{lr, apart} {
		rates := [device.Rates]float64{device.RateLR: lr, device.RateWeightDecay: decay, device.RateCorrection2: 1 - math.Pow(asKernel(c.AdamBeta2), t), device.RateAverage: share}
		device.WriteSlice(o.device, a.rates[i], rates[:])
	}
}

// averaged ends a step that was made.
func (o *Optimizer) averaged() {
	device.WriteSlice(o.device, o.averaging.state, o.averaging.next[:])
}

// updateAverage makes a step of a run, and its values x.
func (o *Optimizer) updateAverage(r *run) {
	rates := o.averaging.rates[0]
	if r.apart {
		rates = o.averaging.rates[1]
	}
	o.device.ScheduleFree(device.ScheduleFreeArgs{X: r.main, Z: r.m, V: r.v, Grad: r.grad, Model: r.value, Hyper: r.hyper, Rates: rates, Segments: r.segments, Mults: r.mults,
		Beta1: float32(o.config.AdamBeta1), Beta2: float32(o.config.AdamBeta2), Eps: float32(r.eps)})
}

// toGradients makes all values y.
func (o *Optimizer) toGradients() error {
	if o.averaging == nil {
		return nil
	}
	if err := o.awaitGathers(); err != nil { // of x
		return err
	}
	for _, b := range o.buckets {
		for i := range b.parts {
			if p := &b.parts[i]; !b.frozen && p.n > 0 {
				o.device.Blend(device.BlendArgs{Out: b.ownValues.Slice(0, p.from, p.n), X: p.main, Y: p.m, A: float32(o.config.AdamBeta1)})
			}
		}
	}
	return o.gatherAll()
}

// storedAverage adds what the average continues from.
func (o *Optimizer) storedAverage(all []mpu.Stored) []mpu.Stored {
	if o.averaging == nil {
		return all
	}
	return append(all, mpu.Stored{Name: StoredAverage, Global: []int64{2}, Tensor: o.averaging.state, Pieces: []mpu.Piece{{From: []int64{0}, Size: []int64{2}}}, Write: rank(o.groups.World) == 0})
}
