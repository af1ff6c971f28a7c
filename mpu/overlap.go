package mpu

import (
	"cmp"

	"monotron/csrc/device"
	"monotron/mpu/comm"
)

// gathered makes a product of all rows from x, the rank's rows of them: with Overlap its own
// first, while full [rows, ...], where all are gathered, is on its way by w.
func (r Region) gathered(w comm.Work, full, x device.Tensor, product func(x device.Tensor, from, n int64) error) error {
	rows := full.Shape[0]
	if w == nil || !r.Overlap {
		if err := wait(w); err != nil {
			return err
		}
		return product(full, 0, rows)
	}
	n := x.Shape[0]
	at := n * int64(r.Rank())
	if err := cmp.Or(product(x, at, n), w.Wait()); err != nil {
		return err
	}
	for _, rest := range [][2]int64{{0, at}, {at + n, rows - at - n}} {
		if rest[1] > 0 {
			if err := product(full.Slice(0, rest[0], rest[1]), rest[0], rest[1]); err != nil {
				return err
			}
		}
	}
	return nil
}

// overlapPieces is in how many pieces a partial sum leaves: one is made while the one before is
// on its way.
const overlapPieces = 2

// scattered makes the partial sums of all rows [rows, n] and adds them up over the ranks, each
// keeping its rows in y. With Overlap every piece has a part of each rank's rows, so that it can
// leave when it is made.
func (r Region) scattered(d *device.Device, s *device.Scope, y device.Tensor, product func(sum device.Tensor, from, n int64) error) error {
	n := y.Shape[0]
	if !r.Overlap || !r.Cut() || r.Leaves > 0 || n%overlapPieces != 0 {
		sum := leaving(r, s, y)
		if err := product(sum, 0, sum.Shape[0]); err != nil {
			return err
		}
		return wait(leave(r, d, y, sum))
	}
	piece := n / overlapPieces
	var under [overlapPieces]comm.Work
	for i := range under {
		sum := s.Alloc(y.DType, piece*int64(r.Size()), y.Shape[1])
		for rank := range int64(r.Size()) {
			if err := product(sum.Slice(0, rank*piece, piece), rank*n+int64(i)*piece, piece); err != nil {
				return err
			}
		}
		under[i] = ReduceScatterToSequenceForward(r, y.Slice(0, int64(i)*piece, piece), sum)
	}
	for _, w := range under {
		if err := w.Wait(); err != nil {
			return err
		}
	}
	return nil
}
