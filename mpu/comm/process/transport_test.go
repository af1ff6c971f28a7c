package process

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	engine "monotron/csrc/comm"
	"monotron/csrc/device"
	"monotron/mpu/comm"
	"monotron/mpu/comm/commtest"
)

// glooHere makes the library that `make gloo` has built known, or skips.
func glooHere(t testing.TB) {
	t.Helper()
	if _, err := os.Stat("../../../bin/" + engine.Library); err == nil && os.Getenv("MONOTRON_GLOO") == "" {
		t.Setenv("MONOTRON_GLOO", "../../../bin/"+engine.Library)
	}
	if err := engine.Available(); err != nil {
		t.Skip("Gloo is not here: ", err)
	}
}

// Claim (docs/hosts.md): whichever way the bytes go, sums have the bits of
// sums among goroutines; every rank says which way that was.
func TestTransportsCarryTheSame(t *testing.T) {
	const ranks, n = 3, 50_001
	sums := func(g *comm.Group) (string, error) {
		a, b := commtest.Heap(device.F32, fractions(g.Rank(), n)), commtest.Heap(device.BF16, fractions(g.Rank(), 3*n))
		mine := b.Slice(0, int64(g.Rank())*n, n)
		to, from := (g.Rank()+1)%ranks, (g.Rank()+2)%ranks
		in := commtest.Heap(device.F32, make([]float64, n))
		err := errors.Join(g.AllReduce(a, comm.Sum).Wait(), g.ReduceScatter(mine, b).Wait(),
			g.Exchange([]comm.Transfer{{Peer: to, Send: true, T: a}, {Peer: from, T: in}}).Wait(), g.Barrier())
		return fmt.Sprint(commtest.Values(a), commtest.Values(mine), commtest.Values(in)), err
	}
	var want [ranks]string
	if err := spmd(ranks, func(g *comm.Group) (err error) { want[g.Rank()], err = sums(g); return err }); err != nil {
		t.Fatal(err)
	}
	for transport, name := range map[string]string{transportShared: "shared memory", transportGloo: "Gloo", transportTCP: "plain TCP"} {
		t.Run(transport, func(t *testing.T) {
			if transport == transportGloo {
				glooHere(t)
			}
			t.Setenv("MONOTRON_TRANSPORTS", transport)
			errs := processes(t, ranks, time.Minute, func(p *World, d *device.Device) error {
				g, err := p.Group(p.Rank(), "all", commtest.Ranks(ranks), d)
				if err != nil {
					return err
				}
				for range 5 {
					if got, err := sums(g); err != nil || got != want[p.Rank()] {
						return errors.Join(err, fmt.Errorf("rank %d has other bits", p.Rank()))
					}
				}
				if said := p.Transports(); said != name+" to 2 ranks" {
					return fmt.Errorf("it went by %s", said)
				}
				return nil
			})
			if err := errors.Join(errs...); err != nil {
				t.Error(err)
			}
		})
	}
}

// fractions are values of a rank whose sums round.
func fractions(rank int, n int64) []float64 {
	values := make([]float64, n)
	for i := range values {
		values[i] = 1 / float64((i*7+rank*13)%1000+3)
	}
	return values
}

// Claim (docs/hosts.md): on every transport many calls under way at once keep
// apart, a rank that dies in the midst of a long message is named, and so is one
// that the others wait for in vain.
func TestTransportsStormAndDeath(t *testing.T) {
	for _, transport := range []string{transportShared, transportGloo} {
		t.Run(transport, func(t *testing.T) {
			if transport == transportGloo {
				glooHere(t)
			}
			t.Setenv("MONOTRON_TRANSPORTS", transport)
			t.Run("storm", TestProcessStorm)
			t.Run("death", TestProcessDeathIsNamed)
			t.Run("deadline", TestProcessDeadline)
			t.Run("mismatch", TestProcessMismatch)
		})
	}
}

// Claim (docs/hosts.md): without the library the ranks talk all the same, and
// say why they do not use it.
func TestTransportsWithoutGloo(t *testing.T) {
	t.Setenv("MONOTRON_TRANSPORTS", transportGloo)
	t.Setenv("MONOTRON_GLOO", "/nowhere/"+engine.Library)
	errs := processes(t, 2, time.Minute, func(p *World, d *device.Device) error {
		g, err := p.Group(p.Rank(), "all", commtest.Ranks(2), d)
		if err != nil {
			return err
		}
		err = g.AllReduce(commtest.Heap(device.F32, fractions(p.Rank(), 9)), comm.Sum).Wait()
		if said := p.Transports(); !strings.Contains(said, "no Gloo (") || !strings.HasSuffix(said, "plain TCP to 1 rank") {
			err = errors.Join(err, fmt.Errorf("it said %s", said))
		}
		return err
	})
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

// Claim (docs/hosts.md): --fast-reduce takes Gloo's own sums: right to
// rounding, alike on all ranks; ranks that call different things are still reported.
func TestFastReduce(t *testing.T) {
	glooHere(t)
	const ranks, n = 3, 50_001
	run := func(length func(rank int) int64) []error {
		return processes(t, ranks, time.Minute, func(p *World, d *device.Device) error {
			if err := p.FastReduce(); err != nil {
				return err
			}
			g, err := p.Group(p.Rank(), "all", commtest.Ranks(ranks), d)
			if err != nil {
				return err
			}
			a, b := commtest.Heap(device.F32, commtest.Elements(p.Rank(), length(p.Rank()))), commtest.Heap(device.I32, []float64{float64(p.Rank())})
			works := []comm.Work{g.AllReduce(a, comm.Sum), g.AllReduce(b, comm.Max), g.AllReduce(a, comm.Max)}
			for _, w := range works {
				err = errors.Join(err, w.Wait())
			}
			return errors.Join(err, commtest.Holds("sum", a, func(i int64) float64 { return commtest.Element(0, i) + commtest.Element(1, i) + commtest.Element(2, i) }),
				commtest.Holds("max", b, func(int64) float64 { return ranks - 1 }), g.Barrier())
		})
	}
	if err := errors.Join(run(func(int) int64 { return n })...); err != nil {
		t.Error(err)
	}
	for rank, err := range run(func(rank int) int64 { return n + int64(rank/2) }) {
		if err == nil || !strings.Contains(err.Error(), "do not call the same") {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}
