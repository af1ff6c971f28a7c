package mpu_test

import (
	"fmt"
	"slices"
	"testing"

	"monotron/csrc/device"
	"monotron/mpu"
)

// packedPasses are the outputs and the input gradients of a column- and of a row-parallel layer, with the bytes of
// weights that a pass allocates. packed: the weights are unpacked for the products.
func packedPasses(r rank, packed bool) (all [][]float64, stretches int, bytes int64, err error) {
	const tokens, wide, narrow = 3, 3200, 640
	column := mpu.NewColumnParallelLinear(r.Region, mpu.LinearConfig{Name: "c", Out: wide, In: narrow, Bias: true})
	row := mpu.NewRowParallelLinear(r.Region, mpu.LinearConfig{Name: "r", Out: narrow, In: wide})
	params := append(column.Params(), row.Params()...)
	mpu.Allocate(r.d, params, device.F64, false)
	for i, p := range params {
		device.WriteSlice(r.d, p.Value, noise(uint64(i+1), p.Value.Len()))
		p.Frozen = true
		if value := p.Value; packed && p.Strips {
			p.Value = device.Tensor{}
			p.Unpack = func(dst device.Tensor, rows, columns [2]int64) error {
				stretches++
				r.d.Copy(dst, value.Slice(0, rows[0], rows[1]).Slice(1, columns[0], columns[1]))
				return nil
			}
		}
	}
	here := r.Rows(tokens * 2)
	x, y, dx := r.with(noise(8, here*narrow), here, narrow), r.alloc(tokens*2, wide/2), r.alloc(here, narrow)
	out, dy := r.alloc(here, narrow), r.alloc(tokens*2, wide/2)
	before := r.d.Arena.Usage().Now[device.Parameters]
	for _, pass := range []func() error{
		func() error { return column.Forward(r.d, nil, y, x, device.NoEpilogue, device.Tensor{}) },
		func() error { return row.Forward(r.d, nil, out, y) },
		func() error { return row.Backward(r.d, nil, dy, out, y) },
		func() error { return column.Backward(r.d, nil, dx, dy, x) },
	} {
		if err := pass(); err != nil {
			return nil, 0, 0, err
		}
	}
	for _, t := range []device.Tensor{y, out, dy, dx} {
		all = append(all, device.ReadSlice[float64](r.d, t))
	}
	return all, stretches, r.d.Arena.Usage().Peak[device.Parameters] - before, nil
}

// Claim: a layer whose weight is unpacked in stretches of rows, forward, and of columns, backward, gives the bits that it
// gives with the complete weight, and has a stretch in memory at a time.
func TestPackedWeights(t *testing.T) {
	for _, sequence := range []bool{false, true} {
		onRanks(t, 2, sequence, func(r rank) error {
			want, none, _, err := packedPasses(r, false)
			if err != nil {
				return err
			}
			got, stretches, bytes, err := packedPasses(r, true)
			if err != nil {
				return err
			}
			for i := range want {
				if !slices.Equal(got[i], want[i]) || !slices.ContainsFunc(want[i], func(v float64) bool { return v != 0 }) {
					return fmt.Errorf("result %d is another than that of the complete weight", i)
				}
			}
			// Each rank's weights [1600, 640] and [640, 1600] are two stretches a pass, of 832 and 320 rows or columns.
			if none != 0 || stretches != 8 || bytes != 832*640*8 {
				return fmt.Errorf("%d stretches of %d bytes at most, and %d of complete weights", stretches, bytes, none)
			}
			return nil
		})
	}
}
