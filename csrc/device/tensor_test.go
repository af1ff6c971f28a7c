package device

import "testing"

// Claim: a part of a tensor has the shape of one that was made so, whatever it is a part of.
func TestAt(t *testing.T) {
	x := View(nil, F32, 2, 3, 4, 5)
	if got, want := x.At(0).At(0), View(nil, F32, 4, 5); !same(got, want) {
		t.Errorf("%v; want %v", got, want)
	}
}
