package elementary

import "math"

// The natural logarithm of 2 in two pieces, the first of 32 bits: its product with an exponent is exact.
const (
	ln2High = 0x1.62e42feep-1
	ln2Low  = 0x1.a39ef35793c76p-33
)

// series is c[0] + c[1]·x + c[2]·x² ...
func series(x float64, c []float64) float64 {
	sum := c[len(c)-1]
	for i := len(c) - 2; i >= 0; i-- {
		sum = c[i] + float64(x*sum)
	}
	return sum
}

// Taylor's series of (e^r - 1 - r)/r², their even and their odd powers; of (cos r - 1)/r² and of
// (sin r - r)/r³; and of (log((1+s)/(1-s)) - 2s)/s³, all by squares.
var (
	expEven   = []float64{1. / 2, 1. / 24, 1. / 720, 1. / 40320, 1. / 3628800, 1. / 479001600}
	expOdd    = []float64{1. / 6, 1. / 120, 1. / 5040, 1. / 362880, 1. / 39916800, 1. / 6227020800}
	cosSeries = []float64{-1. / 2, 1. / 24, -1. / 720, 1. / 40320, -1. / 3628800, 1. / 479001600, -1. / 87178291200, 1. / 20922789888000}
	sinSeries = []float64{-1. / 6, 1. / 120, -1. / 5040, 1. / 362880, -1. / 39916800, 1. / 6227020800, -1. / 1307674368000, 1. / 355687428096000}
	logSeries = []float64{2. / 3, 2. / 5, 2. / 7, 2. / 9, 2. / 11, 2. / 13, 2. / 15, 2. / 17, 2. / 19, 2. / 21}
)

// Exp is e^x = 2^n·e^r with |r| <= ln(2)/2, as mt_exp of csrc/cpu/functions.h makes it.
func Exp(x float64) float64 {
	switch {
	case math.IsNaN(x):
		return x
	case x > 709.782712893384:
		return math.Inf(1)
	case x < -745.2:
		return 0
	}
	n := float64(float64(x*1.4426950408889634)+0x1.8p52) - 0x1.8p52
	r := float64(x-float64(n*ln2High)) - float64(n*ln2Low)
	s := float64(r * r)
	p := 1 + (r + float64(s*(series(s, expEven)+float64(r*series(s, expOdd)))))
	return math.Ldexp(p, int(n))
}

// Log is the logarithm of x = 2^e·(1+f), as mt_log of csrc/cpu/functions.h makes it.
func Log(x float64) float64 {
	switch {
	case x == 0:
		return math.Inf(-1)
	case x < 0:
		return math.NaN()
	case !(x <= math.MaxFloat64):
		return x
	}
	m, e := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m, e = 2*m, e-1
	}
	f, k := m-1, float64(e)
	half := float64(0.5 * f * f)
	s := f / (2 + f)
	z := float64(s * s)
	rest := float64(z * series(z, logSeries))
	return float64(k*ln2High) - ((half - (float64(s*(half+rest)) + float64(k*ln2Low))) - f)
}

// Pow is x^y for x > 0. Where y is an integer it is a product, as in package math.
func Pow(x, y float64) float64 {
	integer := math.Trunc(y)
	if y == integer || !(x > 0) || math.IsInf(x, 1) || math.IsNaN(y) || math.Abs(y) > 1<<52 {
		return math.Pow(x, y) // without exponentials and logarithms
	}
	return float64(Exp(float64((y-integer)*Log(x))) * math.Pow(x, integer))
}

// A quarter of a turn in three pieces: products of the first two with integers below 2^26 are
// exact, or nearly.
const (
	quarterHigh   = 0x1.921fb54p0
	quarterMiddle = 0x1.10b4610p-30
	quarterLow    = 0x1.a62633145c06ep-58
)

// Sincos is the sine and the cosine of x, of which |x| < 2^26 is expected: errors grow beyond.
func Sincos(x float64) (sin, cos float64) {
	n := math.Floor(float64(x*(2/math.Pi)) + 0.5)
	if !(math.Abs(n) < 1<<52) {
		return math.NaN(), math.NaN()
	}
	r := float64(float64(x-float64(n*quarterHigh))-float64(n*quarterMiddle)) - float64(n*quarterLow)
	s := float64(r * r)
	sin = r + float64(float64(r*s)*series(s, sinSeries))
	cos = 1 + float64(s*series(s, cosSeries))
	switch int64(n) & 3 {
	case 1:
		return cos, -sin
	case 2:
		return -sin, -cos
	case 3:
		return -cos, sin
	}
	return sin, cos
}

// Cos is the cosine of x: see Sincos.
func Cos(x float64) float64 {
	_, cos := Sincos(x)
	return cos
}
