package layouts

import "fmt"

// locate names where a difference starts: the first layer whose output is off, or
// in the order of backward the first parameter whose gradient is, and the rank.
func locate(got, want *Outcome, b Bounds) string {
	if where := locateForward(got.hidden, want.hidden, b.Grad); where != "" {
		return where
	}
	for step := range want.grads {
		if where := locateGradient(got, want, step, b.Grad); where != "" {
			return where
		}
	}
	if where := locateForward(got.after, want.after, b.Grad); where != "" {
		return "the evaluation after the last step: " + where
	}
	return "after the last step's gradients: clipping or update"
}

// locateForward names the first layer whose output is off by more than a bound, and
// the rank; "": none is.
func locateForward(got, want views, bound float64) string {
	for depth, theirs := range want {
		for _, name := range names(theirs) {
			t, mine := theirs[name], got.at(depth)[name]
			if mine == nil {
				return fmt.Sprintf("forward of %s, %s, which no rank showed", want.module(depth), name)
			}
			if d := distance(mine.values, t.values) / tensorScale(t); !(d <= bound) {
				return fmt.Sprintf("forward of %s, %s, rank %d: off by %.2g", want.module(depth), name, mine.giver(mine.first(t, bound)), d)
			}
		}
	}
	return ""
}

// locateGradient names the first gradient of a step, in the order of backward, that
// is off by more than a bound, and the rank; "": none is. In a later step that may
// come from the step before: its clipping or update.
func locateGradient(got, want *Outcome, step int, bound float64) string {
	least := gradientScale(want.grads[step])
	for i := len(want.order) - 1; i >= 0; i-- {
		name := want.order[i]
		mine, theirs := got.grads[step][name], want.grads[step][name]
		if mine == nil || theirs == nil || len(mine.values) != len(theirs.values) {
			return fmt.Sprintf("step %d: gradient of %s is missing", step+1, name)
		}
		if d := distance(mine.values, theirs.values) / least(theirs); !(d <= bound) {
			return fmt.Sprintf("step %d: gradient of %s, rank %d: off by %.2g", step+1, name, mine.giver(mine.first(theirs, bound)), d)
		}
	}
	return ""
}

func (v views) module(depth int) string {
	switch depth {
	case 0:
		return "the embedding"
	case len(v) - 1:
		return "the output layer"
	}
	return fmt.Sprintf("layer %d", depth-1)
}

// first is the first element that is off by more than a share of the largest.
func (t *tensor) first(want *tensor, share float64) int64 {
	most := float32(0)
	for _, v := range want.values {
		most = max(most, v, -v)
	}
	for i, v := range want.values {
		if !(abs(t.values[i]-v) <= float32(share)*most) {
			return int64(i)
		}
	}
	return 0
}

func abs(x float32) float32 { return max(x, -x) }
