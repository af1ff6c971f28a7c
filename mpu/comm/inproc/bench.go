package inproc

import (
	"fmt"
	"time"

	"monotron/csrc/device"
	"monotron/mpu/comm"
)

// Speed is how fast a collective was, and the bound that memory sets.
type Speed struct {
	Ranks int
	Bytes int64         // of each rank's tensor
	Took  time.Duration // best of the repetitions
	Copy  float64       // bytes read plus bytes written a second, by a copy in the same run
	Bound time.Duration // what reduce-scatter and all-gather must touch, at that rate
}

// Ratio is the share of the bound that was reached.
func (s Speed) Ratio() float64 { return s.Bound.Seconds() / s.Took.Seconds() }

func (s Speed) String() string {
	return fmt.Sprintf("all-reduce of %d MB among %d ranks: %.1f ms, bound %.1f ms at %.1f GB/s, %.0f%%",
		s.Bytes>>20, s.Ranks, s.Took.Seconds()*1e3, s.Bound.Seconds()*1e3, s.Copy/1e9, 100*s.Ratio())
}

// Bench times an f32 all-reduce of `bytes` among goroutine ranks, each on a device
// that open makes, for about `budget`; the copy speed is measured right after,
// with buffers of the same size. The bound: every rank's reduce-scatter reads its
// part on all ranks and writes it once, its all-gather reads and writes the parts
// of the others.
func Bench(open func() (*device.Device, error), ranks int, bytes int64, budget time.Duration) (Speed, error) {
	s := Speed{Ranks: ranks, Bytes: bytes}
	var members []int
	for r := range ranks {
		members = append(members, r)
	}
	w := NewWorld(ranks)
	// All ranks reduce together; rank 0's time counts.
	err := w.Run(func(rank int) error {
		d, err := open()
		if err != nil {
			return err
		}
		defer d.Close()
		g, err := w.Group(rank, "bench", members, d)
		if err != nil {
			return err
		}
		took, err := comm.TimeAllReduce(g, d, bytes, budget)
		if err != nil || rank > 0 {
			return err
		}
		s.Took = took
		s.Copy, err = device.CopySpeed(d, bytes, budget)
		return err
	})
	// The bytes that all ranks touch, in parts of a rank: reduce-scatter n·part read and part written,
	// all-gather the others' parts read and written.
	n, part := float64(ranks), float64(bytes)/float64(ranks)
	touched := n * (n*part + part + 2*(n-1)*part)
	s.Bound = time.Duration(touched / s.Copy * 1e9)
	return s, err
}
