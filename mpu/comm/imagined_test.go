package comm_test

import (
	"testing"

	"monotron/csrc/device"
	"monotron/mpu/comm"
)

// Claim (docs/invariance.md): a plan for GPUs counts the shares that a sum as a tree receives, until the rank has waited for it.
func TestImaginedShares(t *testing.T) {
	for _, c := range []struct {
		shares bool
		op     comm.ReduceOp
		want   int64
	}{{true, comm.Tree, 3 * 1024 * 4}, {true, comm.Sum, 0}, {false, comm.Tree, 0}} {
		d := device.Counting("cuda", nil, device.Watching{})
		g, err := comm.Imagined{Shares: c.shares}.Group(2, "tp", []int{0, 1, 2, 3}, d)
		if err != nil {
			t.Fatal(err)
		}
		work := g.AllReduce(d.Arena.Alloc(device.Activations, device.F32, 4096), c.op)
		if got := d.Arena.Usage().Now[device.Communication]; got != c.want {
			t.Errorf("%+v: %d bytes while the sum is under way", c, got)
		}
		if err := work.Wait(); err != nil {
			t.Error(err)
		}
		if got := d.Arena.Usage().Now[device.Communication]; got != 0 {
			t.Errorf("%+v: %d bytes after it", c, got)
		}
		d.Close()
	}
}
