package engine

import (
	"reflect"
	"testing"

	"monotron/csrc/ref"
	"monotron/megatron/config"
	"monotron/mpu"
)

// Claim: the rows that count are found by the loss mask, samples next to each other, small gaps with them; where
// nearly all count, all go through the output layer.
func TestLearnedRows(t *testing.T) {
	d := ref.Open()
	defer d.Close()
	ones := func(n int, from, to int) []float32 {
		mask := make([]float32, n)
		for i := from; i < to; i++ {
			mask[i] = 1
		}
		return mask
	}
	e := &Engine{device: d, config: config.Step{}}
	for name, c := range map[string]struct {
		masks [][]float32
		want  [][2]int64
	}{
		"all":             {[][]float32{ones(200, 0, 200)}, nil},
		"nearly all":      {[][]float32{ones(200, 20, 190)}, nil},
		"an answer":       {[][]float32{ones(200, 100, 190)}, [][2]int64{{100, 90}}},
		"two samples":     {[][]float32{ones(200, 100, 190), ones(200, 120, 150)}, [][2]int64{{200, 180}}},
		"far from others": {[][]float32{append(ones(100, 0, 30), ones(300, 100, 300)...)}, [][2]int64{{0, 30}, {200, 200}}},
		"none":            {[][]float32{make([]float32, 100)}, [][2]int64{}},
	} {
		m := &Micro{LossMask: c.masks}
		if got := e.learned(m, mpu.AllPositions(int64(len(c.masks[0])))); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
