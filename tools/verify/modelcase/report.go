package modelcase

import (
	"fmt"
	"math"
	"reflect"
)

// Check is one compared tensor or number.
type Check struct {
	Group     string  `json:"group"`
	Name      string  `json:"name"`
	Error     float64 `json:"error"` // as the tolerance measures it
	Tolerance float64 `json:"tolerance"`
	OK        bool    `json:"ok"`
	Note      string  `json:"note,omitempty"`
}

// Report is what running a case found, in the order it was computed.
type Report struct {
	Case   string
	Device string
	Checks []Check
}

// Counts are the checks within and over their tolerance.
func (r *Report) Counts() (passed, failed int) {
	for _, c := range r.Checks {
		if c.OK {
			passed++
		} else {
			failed++
		}
	}
	return passed, failed
}

// add notes an error; NaN is over any tolerance.
func (r *Report) add(group, name string, err, tolerance float64) {
	r.Checks = append(r.Checks, Check{Group: group, Name: name, Error: err, Tolerance: tolerance, OK: err <= tolerance})
}

// within compares by the largest absolute difference.
func (r *Report) within(group, name string, got, want []float64, tolerance float64) {
	worst := 0.0
	if len(got) != len(want) {
		worst = math.Inf(1)
	}
	for i := range min(len(got), len(want)) {
		worst = math.Max(worst, math.Abs(got[i]-want[i]))
	}
	r.add(group, name, worst, tolerance)
}

// byNorm compares by the L2 norm of the difference over that of want; where
// want is zero everywhere, by the norm of got.
func (r *Report) byNorm(group, name string, got, want []float64, tolerance float64) {
	difference, norm := 0.0, 0.0
	if len(got) != len(want) {
		difference = math.Inf(1)
	}
	for i := range min(len(got), len(want)) {
		d := got[i] - want[i]
		difference += d * d
		norm += want[i] * want[i]
	}
	if norm == 0 {
		norm = 1
	}
	r.add(group, name, math.Sqrt(difference/norm), tolerance)
}

func (r *Report) number(group, name string, got, want, tolerance float64) {
	r.add(group, name, math.Abs(got-want), tolerance)
}

func (r *Report) relative(group, name string, got, want, tolerance float64) {
	r.add(group, name, math.Abs(got-want)/math.Max(math.Abs(want), math.SmallestNonzeroFloat64), tolerance)
}

// exact compares anything; a difference is reported in words.
func (r *Report) exact(group, name string, got, want any) {
	c := Check{Group: group, Name: name, OK: reflect.DeepEqual(got, want)}
	if !c.OK {
		c.Error = 1
		c.Note = fmt.Sprintf("got %v, want %v", got, want)
	}
	r.Checks = append(r.Checks, c)
}

// noteFailed adds words to the failed ones of the checks from a number on.
func (r *Report) noteFailed(from int, words string) {
	for i := range r.Checks[from:] {
		c := &r.Checks[from+i]
		switch {
		case c.OK:
		case c.Note == "":
			c.Note = words
		default:
			c.Note += "; " + words
		}
	}
}
