package process

import (
	"errors"
	"fmt"
	"math/bits"
	"sync/atomic"
	"testing"
	"time"

	"monotron/csrc/device"
	"monotron/mpu/comm"
	"monotron/mpu/comm/commtest"
)

// Claim (docs/hosts.md): in groups of more than 8 ranks collectives give the formula's results,
// from any root, whether they are small enough for the tree or not.
func TestTreeCollectivesByFormula(t *testing.T) {
	for _, ranks := range []int{9, 16, 21} {
		err := onProcesses(t, ranks, func(g *comm.Group) error {
			for _, dtype := range []device.DType{device.F32, device.BF16, device.I64} {
				for _, n := range []int64{0, 1, 5, small/4 + 3} {
					if err := commtest.ByFormula(g, dtype, n); err != nil {
						return fmt.Errorf("%s, %d elements: %w", dtype, n, err)
					}
				}
			}
			return errors.Join(rooted(g), g.Barrier())
		})
		if err != nil {
			t.Errorf("%d ranks: %v", ranks, err)
		}
	}
}

// rooted gathers to, and broadcasts from, every rank.
func rooted(g *comm.Group) error {
	for root := range g.Size() {
		own, all := commtest.Heap(device.F32, []float64{float64(g.Rank()), float64(root)}), device.Tensor{}
		if g.Rank() == root {
			all = commtest.Heap(device.F32, make([]float64, 2*g.Size()))
		}
		if err := g.Gather(all, own, root).Wait(); err != nil {
			return err
		}
		if g.Rank() == root {
			err := commtest.Holds("gathered", all, func(i int64) float64 {
				if i%2 == 1 {
					return float64(root)
				}
				return float64(i / 2)
			})
			if err != nil {
				return err
			}
		}
		word := commtest.Heap(device.F32, []float64{float64(100*g.Rank() + 7)})
		if err := g.Broadcast(word, root).Wait(); err != nil {
			return err
		}
		if err := commtest.Holds("broadcast", word, func(int64) float64 { return float64(100*root + 7) }); err != nil {
			return err
		}
	}
	return nil
}

// Claim (docs/hosts.md): values that all ranks share need connections along a tree only: a
// rank of n has at most 2 log2(n).
func TestTreeNeedsFewConnections(t *testing.T) {
	const ranks = 32
	var connections atomic.Int64
	errs := processes(t, ranks, time.Minute, func(p *World, d *device.Device) error {
		g, err := p.Group(p.Rank(), "all", commtest.Ranks(ranks), d)
		if err != nil {
			return err
		}
		x := commtest.Heap(device.F64, []float64{1, float64(p.Rank())})
		own, all := commtest.Heap(device.F64, []float64{float64(p.Rank())}), commtest.Heap(device.F64, make([]float64, ranks))
		if err := errors.Join(g.AllReduce(x, comm.Sum).Wait(), g.AllGather(all, own).Wait(), g.Broadcast(x, 0).Wait(), g.Barrier()); err != nil {
			return err
		}
		p.links.mu.Lock()
		n := len(p.links.out)
		p.links.mu.Unlock()
		connections.Add(int64(n))
		if n > bits.Len(ranks) {
			return fmt.Errorf("rank %d sends to %d ranks", p.Rank(), n)
		}
		if got := commtest.Values(x)[1]; got != ranks*(ranks-1)/2 {
			return fmt.Errorf("the sum is %v", got)
		}
		return nil
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if n := connections.Load(); n != 2*(ranks-1) {
		t.Errorf("%d connections of %d ranks, a tree has %d", n, ranks, 2*(ranks-1))
	}
}
