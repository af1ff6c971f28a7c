package layouts

import (
	"fmt"
	"math"
	"slices"

	"monotron/megatron/config"
)

// Bounds are the largest differences that rounding explains, relative to one
// rank's numbers; the same in every step.
type Bounds struct {
	Loss   float64 // of each loss
	Grad   float64 // of each gradient tensor, by norm; of the gradient norm
	Weight float64 // of each weight tensor after the last step, by norm, relative to a full move of all its elements
}

// BoundsOf: in f32 sums of some thousand products round to a few 1e-7, and the
// gradients of eight layers carry that through. In bf16 and fp16 every activation
// is rounded to 2⁻⁹ and 2⁻¹² of itself; a layout rounds at other points, some ten
// a layer and each at random, so that about ten times that is left. AdamW moves an
// element by g/(|g|+ε) of the learning rate in its first step: with an ε of about the
// gradients' size (see epsilon) weights are off by no larger share of a full move
// than gradients are of their size, and the next step's gradients hardly more.
func BoundsOf(precision string) Bounds {
	switch precision {
	case config.BF16:
		return Bounds{Loss: 2e-3, Grad: 5e-2, Weight: 5e-2}
	case config.FP16:
		return Bounds{Loss: 3e-4, Grad: 1e-2, Weight: 1e-2}
	}
	return Bounds{Loss: 1e-5, Grad: 1e-4, Weight: 1e-4}
}

// Difference is how far a layout's numbers are from one rank's.
type Difference struct {
	Loss, Norm, Grad, Weight float64 // the worst
	Reported                 float64 // of the losses of multi-token prediction and of layers of experts, as a share of the gradients' bound
	Forward                  float64 // of residual streams and token losses, by norm, as a share of their bound
	WorstGrad, WorstWeight   string
	Samples                  bool // other ones were read, or counted in the loss
	Missing                  string
	Over                     bool // beyond the bounds
}

// compare measures got against want.
func compare(got, want *Outcome, b Bounds) Difference {
	d := Difference{Samples: !slices.EqualFunc(got.samples, want.samples, slices.Equal[[]int64]) || !slices.Equal(got.tokens, want.tokens)}
	for i := range want.losses {
		d.Loss = worse(d.Loss, apart(got.losses[i], want.losses[i]))
		d.Norm = worse(d.Norm, apart(got.norms[i], want.norms[i]))
	}
	for step, theirs := range want.reported {
		for i, x := range theirs[1:] {
			d.Reported = worse(d.Reported, share(apart(got.reported[step][1+i], x), b.Grad))
		}
	}
	d.Loss = worse(d.Loss, apart(got.evaluation, want.evaluation))
	d.Forward = share(worse(got.hidden.apart(want.hidden, &d.Missing), got.after.apart(want.after, &d.Missing)), b.Grad)
	for step, theirs := range want.grads {
		worst, name := farthest(got.grads[step], theirs, gradientScale(theirs), &d.Missing)
		if worst > d.Grad || math.IsNaN(worst) {
			d.Grad, d.WorstGrad = worst, fmt.Sprintf("%s in step %d", name, step+1)
		}
	}
	d.Weight, d.WorstWeight = farthest(got.weights, want.weights, want.fullMove, &d.Missing)
	d.Over = d.Samples || d.Missing != "" || !(d.Loss <= b.Loss && d.Forward <= 1 && d.Reported <= 1 && d.Norm <= b.Grad && d.Grad <= b.Grad && d.Weight <= b.Weight)
	return d
}

// apart is the largest difference of any depth's views, by norm.
func (v *views) apart(want views, missing *string) (most float64) {
	for depth, theirs := range want {
		worst, _ := farthest(v.at(depth), theirs, tensorScale, missing)
		most = worse(most, worst)
	}
	return most
}

// share is how much of a bound a difference uses up; of none any is too much.
func share(difference, bound float64) float64 {
	if difference == 0 {
		return 0
	}
	return difference / bound
}

// worse is the larger; not a number is the worst.
func worse(a, b float64) float64 {
	if math.IsNaN(a) || math.IsNaN(b) {
		return math.NaN()
	}
	return max(a, b)
}

func apart(got, want float64) float64 { return math.Abs(got-want) / max(math.Abs(want), 1e-12) }

// gradientScale: a tensor whose exact gradient is zero holds rounding alone, so
// that its norm does not measure it; a millionth of all gradients' norm is the least.
func gradientScale(want tensors) func(*tensor) float64 {
	least := 1e-6 * want.norm()
	return func(t *tensor) float64 { return max(norm(t.values), least) }
}

// fullMove is the norm of a tensor's change if every element went the same way by the
// learning rate in every step, which is AdamW's most.
func (o *Outcome) fullMove(t *tensor) float64 {
	return o.moved * math.Sqrt(float64(len(t.values)))
}

func tensorScale(t *tensor) float64 { return max(norm(t.values), 1e-12) }

// farthest is the largest ‖got−want‖/scale(want) over the tensors, and whose it is.
func farthest(ts, want tensors, scale func(*tensor) float64, missing *string) (most float64, name string) {
	for _, n := range names(want) {
		got := ts[n]
		if got == nil || got.missing() > 0 || len(got.values) != len(want[n].values) {
			*missing = n
			continue
		}
		if d := distance(got.values, want[n].values) / scale(want[n]); d > most || math.IsNaN(d) {
			most, name = d, n
		}
	}
	return most, name
}

func distance(got, want []float32) float64 {
	sum := 0.0
	for i, v := range want {
		sum += (float64(got[i]) - float64(v)) * (float64(got[i]) - float64(v))
	}
	return math.Sqrt(sum)
}

func names(ts tensors) []string {
	var list []string
	for n := range ts {
		list = append(list, n)
	}
	slices.Sort(list)
	return list
}

// where names the first number of a layout that is off: in the order of a step.
func (d *Difference) where(b Bounds) string {
	switch {
	case d.Samples:
		return "other samples or tokens were counted"
	case d.Missing != "":
		return d.Missing + " is missing on all ranks, or incomplete"
	case !(d.Reported <= 1):
		return "losses of multi-token prediction or of layers of experts"
	case !(d.Forward <= 1):
		return "residual stream or token losses"
	case !(d.Grad <= b.Grad):
		return fmt.Sprintf("gradient of %s", d.WorstGrad)
	case !(d.Loss <= b.Loss):
		return "loss"
	case !(d.Norm <= b.Grad):
		return "gradient norm"
	}
	return "weight " + d.WorstWeight
}
