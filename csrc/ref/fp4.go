package ref

import (
	"math"

	"monotron/csrc/device"
)

// RoundNVFP4 takes every step in f32; conversions keep the compiler from fusing them.
func (b *backend) RoundNVFP4(a *device.RoundNVFP4Args) {
	const largest = 448 * 6 // E4M3's times E2M1's
	most := float32(one(a.Most, 0))
	tensor := min(largest/most, math.MaxFloat32)
	b.blocks(a.Out, a.X, a.Rows, a.Columns, func(x [][]float64, own float32) {
		if !rounds(most) {
			return
		}
		sixth := float32(1) / 6
		scale := formats8[device.E4M3].round(own * float32(tensor*sixth))
		encode := min(1/float32(scale*float32(1/tensor)), math.MaxFloat32)
		decode := float32(scale*most) * (float32(1) / largest)
		for _, row := range x {
			for j, v := range row {
				row[j] = float64(e2m1.round(float32(v)*encode) * decode)
			}
		}
	})
}
