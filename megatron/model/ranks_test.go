package model_test

import (
	"sync"
	"testing"

	"monotron/csrc/device"
	"monotron/mpu/comm"
)

// hub is where goroutine ranks of one group meet: each lays its tensor down, all
// look at all, all go on. Sums run in float64 in rank order.
type hub struct {
	n       int
	mu      sync.Mutex
	turn    *sync.Cond
	arrived int
	round   int
	laid    [][]float64
}

func newHub(n int) *hub {
	h := &hub{n: n, laid: make([][]float64, n)}
	h.turn = sync.NewCond(&h.mu)
	return h
}

func (h *hub) meet() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.arrived++
	if round := h.round; h.arrived < h.n {
		for h.round == round {
			h.turn.Wait()
		}
		return
	}
	h.arrived, h.round = 0, h.round+1
	h.turn.Broadcast()
}

// share shows every rank's values to look, one rank after the other.
func (h *hub) share(rank int, mine []float64, look func(rank int, x []float64)) {
	h.laid[rank] = mine
	h.meet()
	for r, x := range h.laid {
		look(r, x)
	}
	h.meet()
}

// place is a rank's membership of a hub.
type place struct {
	comm.Solo // for what these tests do not use
	hub       *hub
	rank      int
}

type over struct{}

func (over) Wait() error { return nil }

func (p place) Rank() int { return p.rank }
func (p place) Size() int { return p.hub.n }

func (p place) values(t device.Tensor) []float64 {
	raw := make([]byte, t.Bytes())
	p.Device.Read(raw, t)
	return device.ToFloat64(t.DType, raw)
}

func (p place) write(t device.Tensor, x []float64) {
	p.Device.Write(t, device.FromFloat64(t.DType, x))
}

func (p place) sum(t device.Tensor) []float64 {
	total := make([]float64, t.Len())
	p.hub.share(p.rank, p.values(t), func(_ int, x []float64) {
		for i, v := range x {
			total[i] += v
		}
	})
	return total
}

func (p place) AllReduce(t device.Tensor, _ comm.ReduceOp) comm.Work {
	p.write(t, p.sum(t))
	return over{}
}

func (p place) ReduceScatter(out, in device.Tensor) comm.Work {
	n := int(out.Len())
	p.write(out, p.sum(in)[p.rank*n:][:n])
	return over{}
}

func (p place) AllGather(out, in device.Tensor) comm.Work {
	var all []float64
	p.hub.share(p.rank, p.values(in), func(_ int, x []float64) { all = append(all, x...) })
	p.write(out, all)
	return over{}
}

// onRanks runs work on n goroutine ranks, each with its own device, and waits.
func onRanks(t *testing.T, n int, open func() *device.Device, work func(rank int, d *device.Device)) {
	t.Helper()
	var all sync.WaitGroup
	for rank := range n {
		d := open()
		t.Cleanup(d.Arena.Close)
		all.Go(func() { work(rank, d) })
	}
	all.Wait()
}
