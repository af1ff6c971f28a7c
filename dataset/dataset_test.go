package dataset

import (
	"os"
	"slices"
	"testing"
)

// Claim: numpy's shuffle and torch's randperm, by the sequences of the data
// reference (sections 3 and 5).
func TestGeneratorsAgainstNumpyAndTorch(t *testing.T) {
	rng := newMersenne(1234)
	for _, want := range [][]int64{{7, 2, 9, 1, 0, 8, 4, 5, 6, 3}, {7, 3, 5, 1, 4, 8, 0, 2, 6, 9}} {
		a := newArray("<u4", 10)
		for i := range int64(10) {
			a.set(i, i)
		}
		rng.shuffle(a.Data, 4)
		if got := values(a); !slices.Equal(got, want) {
			t.Errorf("shuffle: %v, want %v", got, want)
		}
	}
	for seed, want := range [][]int64{{4, 1, 7, 5, 3, 9, 0, 8, 6, 2}, {5, 6, 1, 2, 0, 8, 9, 3, 7, 4}} {
		if got := randperm(10, uint32(seed)); !slices.Equal(got, want) {
			t.Errorf("randperm seed %d: %v, want %v", seed, got, want)
		}
	}
	if got := newMock(1000, 999).lengths[:5]; !slices.Equal(got, []int32{3484, 2609, 2094, 1105, 1261}) {
		t.Errorf("mock lengths %v", got)
	}
	if os.Getenv("x") != "" {
		t.Skip()
	}
}

func values(a Array) []int64 {
	out := make([]int64, a.Len())
	for i := range out {
		out[i] = a.At(int64(i))
	}
	return out
}
