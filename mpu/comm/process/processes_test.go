package process

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/internal/exitcode"
	"monotron/mpu/bootstrap/rendezvous"
	"monotron/mpu/comm"
	"monotron/mpu/comm/commtest"
	"monotron/mpu/comm/inproc"
	"monotron/mpu/comm/reduce"
)

// processes runs f as each rank of a run of n, which talk as processes do, and
// gives each rank's error.
func processes(t testing.TB, n int, limit time.Duration, f func(p *World, d *device.Device) error) []error {
	t.Helper()
	addr, err := rendezvous.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	errs := make([]error, n)
	var all sync.WaitGroup
	for rank := range n {
		all.Go(func() {
			p, err := Join(context.Background(), rendezvous.Config{Rank: rank, World: n, Addr: addr, Secret: []byte("test"), Timeout: time.Minute}, limit)
			if err != nil {
				errs[rank] = err
				return
			}
			d := ref.Open()
			defer d.Arena.Close()
			errs[rank] = p.End(f(p, d))
		})
	}
	all.Wait()
	return errs
}

// spmd runs f on n goroutines that share one group.
func spmd(n int, f func(g *comm.Group) error) error {
	w := inproc.NewWorld(n)
	return w.Run(func(rank int) error {
		d := ref.Open()
		defer d.Arena.Close()
		g, err := w.Group(rank, "all", commtest.Ranks(n), d)
		if err != nil {
			return err
		}
		return f(g)
	})
}

func onProcesses(t testing.TB, n int, f func(g *comm.Group) error) error {
	t.Helper()
	return errors.Join(processes(t, n, time.Minute, func(p *World, d *device.Device) error {
		g, err := p.Group(p.Rank(), "all", commtest.Ranks(n), d)
		if err != nil {
			return err
		}
		return f(g)
	})...)
}

// Claim: among processes, too, every collective gives the formula's result on
// every rank, for all dtypes, sizes around the small ones' limit, 1 to 4 ranks.
func TestProcessCollectivesByFormula(t *testing.T) {
	for ranks := 1; ranks <= 4; ranks++ {
		err := onProcesses(t, ranks, func(g *comm.Group) error {
			for _, dtype := range commtest.Reduced {
				for _, n := range []int64{0, 1, 5, reduce.Tile - 1, reduce.Tile, 2*reduce.Tile + 3} {
					if err := commtest.ByFormula(g, dtype, n); err != nil {
						return fmt.Errorf("%s, %d elements: %w", dtype, n, err)
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Errorf("%d ranks: %v", ranks, err)
		}
	}
}

// Claim: every dtype travels, and those that an engine might not know are not summed.
func TestProcessEveryDType(t *testing.T) {
	if err := onProcesses(t, 3, commtest.EveryDType); err != nil {
		t.Error(err)
	}
}

// Claim (docs/hosts.md): a sum among processes equals the one among
// goroutines to the bit, though floating-point addition is not associative.
func TestProcessSumsEqualGoroutines(t *testing.T) {
	for _, dtype := range []device.DType{device.F32, device.BF16, device.F16, device.F64} {
		for _, n := range []int64{7, 3*reduce.Tile + 1} {
			const ranks = 4
			sums := func(g *comm.Group) (string, error) {
				values := make([]float64, n)
				for i := range values {
					values[i] = 1 / float64((i*7+g.Rank()*13)%1000+3)
				}
				a, b := commtest.Heap(dtype, values), commtest.Heap(dtype, append(values, append(values, append(values, values...)...)...))
				mine := b.Slice(0, int64(g.Rank())*n, n)
				if err := errors.Join(g.AllReduce(a, comm.Sum).Wait(), g.ReduceScatter(mine, b).Wait()); err != nil {
					return "", err
				}
				return fmt.Sprint(commtest.Values(a), commtest.Values(mine)), nil
			}
			var want, got [ranks]string
			note := func(to *[ranks]string) func(*comm.Group) error {
				return func(g *comm.Group) (err error) {
					to[g.Rank()], err = sums(g)
					return err
				}
			}
			if err := errors.Join(spmd(ranks, note(&want)), onProcesses(t, ranks, note(&got))); err != nil {
				t.Fatal(err)
			}
			if want != got {
				t.Errorf("%s, %d elements: the bits differ", dtype, n)
			}
		}
	}
}

// Claim: many groups, calls under way at once, and exchanges of which each side
// posts both halves, in any order.
func TestProcessStorm(t *testing.T) {
	const n = 4
	errs := processes(t, n, time.Minute, func(p *World, d *device.Device) error {
		all, err := p.Group(p.Rank(), "all", commtest.Ranks(n), d)
		if err != nil {
			return err
		}
		pair, err := p.Group(p.Rank(), "pair", []int{p.Rank() / 2 * 2, p.Rank()/2*2 + 1}, d)
		if err != nil {
			return err
		}
		for step := range int64(50) {
			length := 1 + step*step*11%20_000
			a, b := commtest.Heap(device.F32, commtest.Elements(p.Rank(), length)), commtest.Heap(device.F32, commtest.Elements(p.Rank(), length))
			in := commtest.Heap(device.F32, make([]float64, length))
			works := []comm.Work{all.AllReduce(a, comm.Sum), pair.AllReduce(b, comm.Sum),
				all.Exchange([]comm.Transfer{{Peer: (p.Rank() + 1) % n, Send: true, T: commtest.Heap(device.F32, commtest.Elements(p.Rank(), length))}, {Peer: (p.Rank() + 3) % n, T: in}})}
			for i := range works {
				if err := works[(i+p.Rank())%len(works)].Wait(); err != nil {
					return err
				}
			}
			err := errors.Join(
				commtest.Holds("all", a, func(i int64) float64 {
					return commtest.Element(0, i) + commtest.Element(1, i) + commtest.Element(2, i) + commtest.Element(3, i)
				}),
				commtest.Holds("pair", b, func(i int64) float64 { return commtest.Element(p.Rank()/2*2, i) + commtest.Element(p.Rank()/2*2+1, i) }),
				commtest.Holds("ring", in, func(i int64) float64 { return commtest.Element((p.Rank()+3)%n, i) }), all.Barrier())
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

// Claim (docs/failures.md): ranks that call different things all get the same
// error, which names both.
func TestProcessMismatch(t *testing.T) {
	errs := processes(t, 3, time.Minute, func(p *World, d *device.Device) error {
		g, err := p.Group(p.Rank(), "tp", commtest.Ranks(3), d)
		if err != nil {
			return err
		}
		x := commtest.Heap(device.F32, commtest.Elements(p.Rank(), 100+int64(p.Rank()/2)))
		return g.AllReduce(x, comm.Sum).Wait()
	})
	for rank, err := range errs {
		if err == nil || !strings.Contains(err.Error(), "do not call the same operations: #0 is all_reduce(sum) of 100 f32 on rank") ||
			!strings.Contains(err.Error(), "all_reduce(sum) of 101 f32 on rank 2") || err.Error() != errs[0].Error() {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// Claim (docs/failures.md): when a rank dies its peers return within seconds, and their
// error names it; so for rank 0.
func TestProcessDeathIsNamed(t *testing.T) {
	for _, dead := range []int{1, 0} {
		start := time.Now()
		errs := processes(t, 3, time.Minute, func(p *World, d *device.Device) error {
			g, err := p.Group(p.Rank(), "all", commtest.Ranks(3), d)
			if err != nil {
				return err
			}
			x := commtest.Heap(device.F32, commtest.Elements(p.Rank(), 100_000))
			if err := g.AllReduce(x, comm.Sum).Wait(); err != nil {
				return err
			}
			if p.Rank() == dead {
				p.links.cut()
				p.session.Break()
				return errors.New("killed")
			}
			return g.AllReduce(x, comm.Sum).Wait()
		})
		for rank, err := range errs {
			if rank != dead && (err == nil || !strings.HasPrefix(err.Error(), fmt.Sprintf("rank %d (process", dead))) {
				t.Errorf("rank %d of a run whose rank %d died: %v", rank, dead, err)
			}
		}
		if took := time.Since(start); took > 40*time.Second {
			t.Errorf("it took %v", took)
		}
	}
}

// Claim: the error of the rank that fails first is everybody's, with its code.
func TestProcessErrorReachesPeers(t *testing.T) {
	errs := processes(t, 3, time.Minute, func(p *World, d *device.Device) error {
		g, err := p.Group(p.Rank(), "all", commtest.Ranks(3), d)
		if err != nil {
			return err
		}
		if p.Rank() == 2 {
			return exitcode.Errorf(exitcode.BadData, "a bad sample")
		}
		return g.Barrier()
	})
	for rank, err := range errs {
		if exitcode.CodeOf(err) != exitcode.BadData || err.Error() != "rank 2: a bad sample" {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// Claim: nobody waits longer than the limit; the error says for whom.
func TestProcessDeadline(t *testing.T) {
	errs := processes(t, 3, 3*time.Second, func(p *World, d *device.Device) error {
		g, err := p.Group(p.Rank(), "all", commtest.Ranks(3), d)
		if err != nil || p.Rank() == 1 {
			<-p.session.Lost()
			return err
		}
		return g.AllReduce(commtest.Heap(device.F32, commtest.Elements(0, 3)), comm.Sum).Wait()
	})
	for rank, err := range errs {
		if err == nil || !strings.Contains(err.Error(), "waited 3s in all_reduce(sum) of 3 f32 #0 of group all [0 1 2] for messages from ranks [1]") {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// Claim: a rank that ends while others count on it is an error that says so.
func TestProcessEndsEarly(t *testing.T) {
	errs := processes(t, 2, time.Minute, func(p *World, d *device.Device) error {
		g, err := p.Group(p.Rank(), "all", commtest.Ranks(2), d)
		if err != nil {
			return err
		}
		if err := g.Barrier(); err != nil || p.Rank() == 1 {
			return err
		}
		return g.Barrier()
	})
	if err := errs[0]; err == nil || !strings.Contains(err.Error(), "rank 1 ended while rank 0 was waiting for it in barrier #1") {
		t.Error(err)
	}
}
