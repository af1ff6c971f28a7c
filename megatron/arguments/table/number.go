package table

import (
	"fmt"
	"math"
	"strconv"

	"monotron/internal/argv"
)

// Upper ends that several rows have.
const (
	sizes   = 1<<31 - 1 // no product of two overflows 64 bits
	lists   = 100_000   // counts that lists are made for
	samples = 1 << 53   // a float64 counts them one by one
	rates   = 1e30      // of learning: far above sense, far below where f32 ends
	year    = 366 * 24 * 60
)

// Range is where a number may lie.
type Range struct {
	Low, High           float64
	AboveLow, BelowHigh bool // the end itself is outside
}

func (f Flag) from(low, high float64) Flag  { f.Range = &Range{Low: low, High: high}; return f }
func (f Flag) above(low, high float64) Flag { f.Range = &Range{low, high, true, false}; return f }
func (f Flag) below(low, high float64) Flag { f.Range = &Range{low, high, false, true}; return f }

// holds reports whether x lies in r; not a number never does.
func (r *Range) holds(x float64) bool {
	return x >= r.Low && x <= r.High && !(r.AboveLow && x == r.Low) && !(r.BelowHigh && x == r.High)
}

func (r *Range) String() string {
	from, to := "from ", " to "
	if r.BelowHigh {
		from, to = "at least ", " and below "
	}
	if r.AboveLow {
		from = "above "
	}
	return from + endText(r.Low) + to + endText(r.High)
}

// endText writes integers with all digits: nobody counts in 2.147483647e+09.
func endText(x float64) string {
	if x == math.Trunc(x) && math.Abs(x) <= 1<<53 {
		return strconv.FormatInt(int64(x), 10)
	}
	return strconv.FormatFloat(x, 'g', -1, 64)
}

// Number checks one value of a flag that takes numbers and writes it in the one
// way that Go reads too.
func (f *Flag) Number(text string) (string, error) {
	canonical, x, ok := f.Kind.number(text)
	switch {
	case !ok:
		return "", fmt.Errorf("--%s must be %s%s, not %s", f.Name, f.Kind.noun(), f.span(), argv.Shown(text))
	case f.Range != nil && !f.Range.holds(x):
		return "", fmt.Errorf("--%s must be%s, not %s", f.Name, f.span(), text)
	}
	return canonical, nil
}

// span says where the numbers of f may lie, if that is said.
func (f *Flag) span() string {
	if f.Range == nil {
		return ""
	}
	return " " + f.Range.String()
}

// number reads one value as Python does.
func (k Kind) number(text string) (canonical string, x float64, ok bool) {
	if k == Int || k == Ints {
		n, ok := argv.Int(text)
		return strconv.FormatInt(n, 10), float64(n), ok
	}
	x, ok = argv.Float(text)
	return strconv.FormatFloat(x, 'g', -1, 64), x, ok
}

// noun is what one value is, for messages.
func (k Kind) noun() string {
	if k == Int || k == Ints {
		return "an integer"
	}
	return "a number"
}

// Numeric reports whether a kind's values are numbers.
func (k Kind) Numeric() bool { return k != Switch && k != String && k != Strings }
