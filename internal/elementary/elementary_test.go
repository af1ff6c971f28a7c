package elementary

import (
	"hash/fnv"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// distance is how many ulps got is from want, of which package math has more digits than one ulp.
func distance(got, want float64) float64 {
	if got == want || (math.IsNaN(got) && math.IsNaN(want)) {
		return 0
	}
	return math.Abs(got-want) / (math.Nextafter(math.Abs(want), math.Inf(1)) - math.Abs(want))
}

// Claim: results are those of package math to rounding: each is within about an ulp of the exact one.
func TestValues(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	worst := map[string]float64{}
	for range 100000 {
		x, y := (r.Float64()-0.5)*1400, math.Exp((r.Float64()-0.5)*1000)
		near, angle := 1+(r.Float64()-0.5)/8, (r.Float64()-0.5)*math.Exp2(float64(r.IntN(21)))
		sin, cos := Sincos(angle)
		wantSin, wantCos := math.Sincos(angle)
		for _, c := range []struct {
			name      string
			got, want float64
		}{
			{"exp", Exp(x), math.Exp(x)}, {"exp", Exp(x / 500), math.Exp(x / 500)},
			{"log", Log(y), math.Log(y)}, {"log", Log(near), math.Log(near)},
			{"sin", 1 + sin/2, 1 + wantSin/2}, {"cos", 1 + cos/2, 1 + wantCos/2}, {"cos", Cos(angle), cos},
		} {
			worst[c.name] = max(worst[c.name], distance(c.got, c.want))
		}
		exponent := (r.Float64() - 0.5) * 4
		if got, want := Pow(y, exponent), math.Pow(y, exponent); math.Abs(got-want) > 1e-12*want && want > 1e-290 && want < 1e290 {
			t.Fatalf("Pow(%g, %g) = %g, not %g", y, exponent, got, want)
		}
	}
	for name, ulps := range worst {
		if ulps > 2 {
			t.Errorf("%s is up to %.1f ulps from package math", name, ulps)
		}
	}
}

// Claim: sine and cosine keep their digits where they are near 0, as at multiples of a quarter of a turn.
func TestSincosNearZero(t *testing.T) {
	quarter, _, err := big.ParseFloat("1.57079632679489661923132169163975144209858469968755291048747229615390820314310449931401741267105853399107404326", 10, 300, big.ToNearestEven)
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n < 1<<20; n = n*3 + 1 {
		x, _ := new(big.Float).Mul(quarter, big.NewFloat(float64(n))).Float64()
		rest, _ := new(big.Float).Sub(new(big.Float).SetPrec(300).SetFloat64(x), new(big.Float).SetPrec(300).Mul(quarter, big.NewFloat(float64(n)))).Float64()
		sin, cos := Sincos(x)
		small := sin
		if n%2 == 1 {
			small = cos
		}
		if math.Abs(math.Abs(small)-math.Abs(rest)) > 1e-6*math.Abs(rest) {
			t.Errorf("at %d quarters of a turn: %g, not %g", n, small, rest)
		}
	}
}

func TestLimits(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for _, c := range []struct{ got, want float64 }{
		{Exp(0), 1}, {Exp(inf), inf}, {Exp(-inf), 0}, {Exp(nan), nan}, {Exp(709.79), inf}, {Exp(-745.1), 5e-324},
		{Log(1), 0}, {Log(0), -inf}, {Log(-1), nan}, {Log(inf), inf}, {Log(nan), nan}, {Log(5e-324), -744.4400719213812},
		{Pow(10, 3), 1000}, {Pow(2, -8), 1.0 / 256}, {Pow(4, 0.5), 2}, {Pow(0, 0.5), 0}, {Pow(7, 0), 1}, {Pow(-2, 0.5), nan}, {Pow(2, nan), nan},
		{Cos(0), 1}, {Cos(math.Pi), -1}, {Cos(inf), nan}, {Cos(nan), nan},
	} {
		if distance(c.got, c.want) > 1 {
			t.Errorf("%g, not %g", c.got, c.want)
		}
	}
}

// Claim: the bits are the same on every processor: this sum was made on amd64, and tests/proofs/packaging/arm64.sh
// makes it on arm64.
func TestSameBitsOnEveryProcessor(t *testing.T) {
	const made = 0x54c8ccfcaf01e730
	r := rand.New(rand.NewPCG(5, 6))
	sum := fnv.New64a()
	add := func(x float64) {
		var b [8]byte
		for i := range b {
			b[i] = byte(math.Float64bits(x) >> (8 * i))
		}
		sum.Write(b[:])
	}
	for range 100000 {
		x, y := float64((r.Float64()-0.5)*1400), float64(r.Float64()*1e6)
		add(Exp(x))
		add(Exp(x / 500))
		add(Log(y))
		add(Pow(y, float64((r.Float64()-0.5)*3)))
		sin, cos := Sincos(y)
		add(sin)
		add(cos)
	}
	if sum.Sum64() != made {
		t.Errorf("the sum of all bits is %#x, not %#x", sum.Sum64(), uint64(made))
	}
}
