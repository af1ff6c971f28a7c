package argv

import (
	"math"
	"testing"
)

// Claim: integers are read as Python's int() reads them (CPython 3.11).
func TestIntIsPythons(t *testing.T) {
	for text, want := range map[string]int64{"7": 7, "+5": 5, "-3": -3, "9_765_625": 9765625, "007": 7, " 12\t": 12, "\u20094\u0085": 4, "٣": 3, "1_٣": 13,
		"𝟗": 9, "-0": 0, "0_0": 0, "9223372036854775807": math.MaxInt64, "99999999999999999999999": math.MaxInt64, "4611686018427387904": 1 << 62} {
		if n, ok := Int(text); !ok || n != want {
			t.Errorf("%q: %d %v, want %d", text, n, ok, want)
		}
	}
	for _, text := range []string{"", " ", "_1", "1_", "1__0", "1.0", "1e3", "0x10", "+-1", "+", "- 1", "1 2", "½", "²", "inf", "--1", "\x1c4", "\x1f٣"} {
		if n, ok := Int(text); ok {
			t.Errorf("%q is read as %d; Python refuses it", text, n)
		}
	}
}

// Claim: numbers are read as Python's float() reads them (CPython 3.11).
func TestFloatIsPythons(t *testing.T) {
	for text, want := range map[string]float64{"1_0.5": 10.5, "1e-5": 1e-5, ".5": 0.5, "5.": 5, "+1_0e1_0": 1e11, "-2": -2, " 3\n": 3, "inf": math.Inf(1),
		"-Infinity": math.Inf(-1), "1e999": math.Inf(1), "1e-999": 0, "007.5": 7.5, "٣.٥": 3.5, "6.0e-5": 6e-5} {
		if x, ok := Float(text); !ok || x != want {
			t.Errorf("%q: %g %v, want %g", text, x, ok, want)
		}
	}
	if x, ok := Float("+NaN"); !ok || !math.IsNaN(x) {
		t.Errorf("+NaN: %g %v", x, ok)
	}
	for _, text := range []string{"", ".", "1_.5", "1._5", "_1", "1__0", "0x1p3", "1e", "e5", "1e_5", "infinit", "in_f", "1 0", "+-1", "1.5f"} {
		if x, ok := Float(text); ok {
			t.Errorf("%q is read as %g; Python refuses it", text, x)
		}
	}
}
