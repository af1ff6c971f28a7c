package mpu

import (
	"testing"

	"monotron/csrc/device"
	"monotron/csrc/ref"
)

// Claim: blocks of an output layer with an adapter begin with a position, since the adapter's dropout goes by position;
// without one they have as many rows as the device's products are fast with.
func TestBlocksOfAnAdaptedHead(t *testing.T) {
	d := ref.Open()
	defer d.Close()
	for _, c := range []struct {
		adapted            bool
		batch, rows, wants int64
	}{{false, 3, 1536, 1024}, {true, 3, 1536, 1023}, {true, 4, 2048, 1024}, {true, 1500, 3000, 1500}, {true, 3, 30, 30}, {true, 0, 1536, 1024}} {
		head := &VocabParallelHead{}
		if c.adapted {
			head.adapter = &adapter{}
		}
		a := LossArgs{Hidden: device.View(nil, device.F32, c.rows).Reshape(c.rows, 1), Batch: c.batch}
		if got := head.blockRows(d, &a); got != c.wants {
			t.Errorf("%+v: %d rows", c, got)
		}
	}
}
