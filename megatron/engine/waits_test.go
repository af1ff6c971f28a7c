package engine

import (
	"maps"
	"sync"
	"testing"
	"unsafe"

	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/megatron/config"
	"monotron/mpu/comm"
	"monotron/mpu/ranks"
)

// waits are what a rank has waited for in a step.
type waits struct {
	device.Backend
	ops   int             // enqueued so far
	reads int             // by the host, each of which waits for the device
	syncs int             // by the host, without reading
	bare  map[comm.Op]int // collectives that were waited for at once, with nothing during them
}

func (w *waits) Run(op device.Op, args unsafe.Pointer) error {
	w.ops++
	return w.Backend.Run(op, args)
}

func (w *waits) Read(dst []byte, src unsafe.Pointer) error {
	w.reads++
	return w.Backend.Read(dst, src)
}

func (w *waits) Sync() error {
	w.syncs++
	return w.Backend.Sync()
}

// listening is an engine whose waits are counted.
type listening struct {
	comm.Engine
	to *waits
}

type listened struct {
	comm.Work
	op comm.Op
	at int
	to *waits
}

func (l listening) Start(c *comm.Collective) comm.Work {
	return listened{l.Engine.Start(c), c.Op, l.to.ops, l.to}
}

func (l listened) Wait() error {
	if l.at == l.to.ops {
		l.to.bare[l.op]++
	}
	return l.Work.Wait()
}

// waitsOf trains three steps of two micro-batches a rank, and gives what rank 0 waited for
// in the last, with the losses.
func waitsOf(t *testing.T, c config.Step) (w *waits, losses []float64) {
	t.Helper()
	var mu sync.Mutex
	batch := testBatch(2*c.Layout.Sizes().DP, 1, c.SeqLength)
	open := func() (*device.Device, error) {
		return ref.Open().Through(func(b device.Backend) device.Backend { return &waits{Backend: b, bare: map[comm.Op]int{}} }), nil
	}
	err := ranks.Run(Ranks(&c, open), func(r *ranks.Rank) error {
		var mine *waits
		r.Device.Through(func(b device.Backend) device.Backend {
			mine = b.(*waits)
			return b
		})
		for kind, g := range r.Groups {
			if g.Size() > 1 {
				r.Groups[kind] = g.Over(func(e comm.Engine) comm.Engine { return listening{e, mine} })
			}
		}
		e, micros, err := begun(r, c, batch)
		if err != nil {
			return err
		}
		for range 3 {
			mine.reads, mine.syncs = 0, 0
			clear(mine.bare)
			result, err := e.Step(micros)
			if err != nil {
				return err
			}
			if r.First() {
				mu.Lock()
				losses = append(losses, result.Loss)
				mu.Unlock()
			}
		}
		if r.First() {
			w = &waits{reads: mine.reads, syncs: mine.syncs, bare: maps.Clone(mine.bare)}
		}
		_, _, err = e.Loss(micros) // and what is gathered late
		return err
	})
	if err != nil {
		t.Fatalf("%+v: %v", c.Layout, err)
	}
	return w, losses
}

// Claim (docs/cuda.md): a step reads of its device once, with the update's result,
// under every layout; a loss per token needs the tokens before.
func TestHostReadsOnceAStep(t *testing.T) {
	for name, l := range map[string]config.Layout{"one": {}, "tp": {TP: 2, SequenceParallel: true}, "pp": {PP: 2}, "dp": {DP: 2},
		"zero1": {DP: 2, DistributedOptimizer: true, Sharding: "optim", OverlapGradReduce: true, OverlapParamGather: true},
		"zero3": {DP: 2, DistributedOptimizer: true, Sharding: "optim_grads_params"}, "all": {TP: 2, PP: 2, DP: 2}} {
		for _, perToken := range []bool{false, true} {
			c, want := layoutConfig(l), 1
			if c.CalculatePerTokenLoss = perToken; perToken {
				want = 2
			}
			if w, _ := waitsOf(t, c); w.reads != want || w.syncs != 0 {
				t.Errorf("%s, loss per token %v: the host reads %d times and waits %d times more, want %d and 0", name, perToken, w.reads, w.syncs, want)
			}
		}
	}
}

// Claim (docs/cuda.md): under ZeRO-3 with --overlap-param-gather no gather is waited for
// at once but those of a step's first use; what is brought before it is used changes no number.
func TestGathersAhead(t *testing.T) {
	zero3 := config.Layout{DP: 2, DistributedOptimizer: true, Sharding: "optim_grads_params", OverlapGradReduce: true}
	for name, first := range map[string]int{"dp": 1, "recompute": 1, "pp": 2, "vp": 2} { // a table that two stages have is a bucket of its own
		l := zero3
		if first == 2 {
			l.PP = 2
		}
		if name == "vp" {
			l.VP = 2
		}
		c := layoutConfig(l)
		if name == "recompute" {
			c.Recompute.Granularity, c.Recompute.Method, c.Recompute.NumLayers = "full", "uniform", 2
		}
		plain, want := waitsOf(t, c)
		c.Layout.OverlapParamGather = true
		ahead, got := waitsOf(t, c)
		if plain.bare[comm.AllGather] < 8 || ahead.bare[comm.AllGather] != first {
			t.Errorf("%s: %d gathers waited for at once, ahead %d, want %d", name, plain.bare[comm.AllGather], ahead.bare[comm.AllGather], first)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%s, step %d: loss %v, without %v", name, i, got[i], want[i])
			}
		}
		t.Logf("%s: waited for at once: %v, ahead %v", name, plain.bare, ahead.bare)
	}
}

// Claim (docs/cuda.md): with --tp-comm-overlap no gather of rows is waited for at once,
// and of the scatters one each; a product in pieces has the uncut one's numbers.
func TestProductsDuringGathers(t *testing.T) {
	for name, l := range map[string]config.Layout{"tp2": {TP: 2}, "tp4": {TP: 4}, "tp2 pp2": {TP: 2, PP: 2}} {
		l.SequenceParallel = true
		c := layoutConfig(l)
		full, want := waitsOf(t, c)
		c.Layout.TPCommOverlap = true
		pieces, got := waitsOf(t, c)
		t.Logf("%s: waited for at once: %v, in pieces %v", name, full.bare, pieces.bare)
		if pieces.bare[comm.AllGather] >= full.bare[comm.AllGather]/2 {
			t.Errorf("%s: %d gathers waited for at once, in pieces %d", name, full.bare[comm.AllGather], pieces.bare[comm.AllGather])
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%s, step %d: loss %v, whole %v", name, i, got[i], want[i])
			}
		}
	}
}
