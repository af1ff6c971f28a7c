package mpu

import (
	"math"
	"slices"
	"testing"

	"monotron/csrc/device"
)

// Claim: the scale of the next step, and the history, are those of Transformer Engine's kernel: a magnitude of 0 changes neither, one that is not
// finite makes no scale and one that is not a number is not the largest of a history, a tiny one makes the largest f32, and a margin divides.
func TestNextScale(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for name, c := range map[string]struct {
		table   Delayed
		format  int32
		history []float32
		most    float32
		scale   float32 // next; the one before is 3
		after   []float32
	}{
		"latest":                {Delayed{}, device.E4M3, []float32{7, 8}, 2, 224, []float32{8, 2}},
		"largest":               {Delayed{Largest: true}, device.E4M3, []float32{7, 8}, 2, 56, []float32{8, 2}},
		"the oldest leaves":     {Delayed{Largest: true}, device.E4M3, []float32{9, 8}, 2, 56, []float32{8, 2}},
		"alone":                 {Delayed{Largest: true}, device.E5M2, []float32{9}, 2, 28672, []float32{2}},
		"margin":                {Delayed{Margin: 3}, device.E5M2, []float32{0, 0}, 2, 3584, []float32{0, 2}},
		"zero":                  {Delayed{}, device.E4M3, []float32{7, 8}, 0, 3, []float32{7, 8}},
		"zero, largest":         {Delayed{Largest: true}, device.E4M3, []float32{7, 8}, 0, 3, []float32{7, 8}},
		"infinite":              {Delayed{}, device.E4M3, []float32{7, 8}, inf, 3, []float32{8, inf}},
		"infinite, largest":     {Delayed{Largest: true}, device.E4M3, []float32{7, 8}, inf, 3, []float32{8, inf}},
		"infinite before":       {Delayed{Largest: true}, device.E4M3, []float32{7, inf}, 2, 3, []float32{inf, 2}},
		"infinite long before":  {Delayed{Largest: true}, device.E4M3, []float32{inf, 7}, 2, 64, []float32{7, 2}},
		"infinite, then latest": {Delayed{}, device.E4M3, []float32{7, inf}, 2, 224, []float32{inf, 2}},
		"not a number":          {Delayed{}, device.E4M3, []float32{7, 8}, nan, 3, []float32{8, nan}},
		"not a number, largest": {Delayed{Largest: true}, device.E4M3, []float32{7, 8}, nan, 56, []float32{8, nan}},
		"tiny":                  {Delayed{}, device.E4M3, []float32{0, 0}, 1e-38, math.MaxFloat32, []float32{0, 1e-38}},
		"rounded":               {Delayed{}, device.E4M3, []float32{0, 0}, 0.3, float32(448) / float32(0.3), []float32{0, 0.3}},
	} {
		history := slices.Clone(c.history)
		got := c.table.next(3, history, c.most, c.format)
		same := slices.EqualFunc(history, c.after, func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) })
		if got != c.scale || !same {
			t.Errorf("%s: scale %g and history %v, want %g and %v", name, got, history, c.scale, c.after)
		}
	}
}
