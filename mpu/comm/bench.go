package comm

import (
	"fmt"
	"time"

	"monotron/csrc/device"
)

// Speed is how fast a collective went, beside what the memory allows.
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
		took, err := timeAllReduce(g, d, bytes, budget)
		if err != nil || rank > 0 {
			return err
		}
		s.Took = took
		s.Copy, err = device.CopySpeed(d, bytes, budget)
		return err
	})
	n, part := float64(ranks), float64(bytes)/float64(ranks)
	touched := n * (n*part + part + 2*(n-1)*part)
	s.Bound = time.Duration(touched / s.Copy * 1e9)
	return s, err
}

// Bench times an all-reduce of `bytes` among all processes of the run for about
// `budget`: the best, as this rank sees it.
func (p *Process) Bench(d *device.Device, bytes int64, budget time.Duration) (time.Duration, error) {
	var members []int
	for r := range p.size {
		members = append(members, r)
	}
	g, err := p.Group(p.rank, fmt.Sprint("bench ", bytes), members, d)
	if err != nil {
		return 0, err
	}
	return timeAllReduce(g, d, bytes, budget)
}

// timeAllReduce repeats an all-reduce until rank 0 finds the budget spent.
func timeAllReduce(g *Group, d *device.Device, bytes int64, budget time.Duration) (best time.Duration, err error) {
	t := d.Arena.Zeroed(device.Communication, device.F32, bytes/4)
	more := d.Arena.Zeroed(device.Communication, device.I32, 1)
	end := time.Now().Add(budget)
	for n := 0; ; n++ {
		if err := g.Barrier(); err != nil {
			return 0, err
		}
		start := time.Now()
		if err := g.AllReduce(t, Sum).Wait(); err != nil {
			return 0, err
		}
		if took := max(1, time.Since(start)); n == 1 || (n > 1 && took < best) { // the first warms up
			best = took
		}
		if g.Rank() == 0 {
			d.Fill(more, 0)
			if n < 3 || time.Now().Before(end) {
				d.Fill(more, 1)
			}
		}
		if err := g.Broadcast(more, 0).Wait(); err != nil {
			return 0, err
		}
		if device.ReadSlice[int32](d, more)[0] == 0 {
			return best, nil
		}
	}
}
