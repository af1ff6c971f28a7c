package optimizer

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"monotron/csrc/device"
	"monotron/megatron/optimizer/offload"
)

// TestElsewhereIsTheSame: what lies in files has, after some steps, the bits of what lies in
// memory: values, masters, moments, norms, with every optimizer, dtype and sharding, also
// where a step is skipped; under ZeRO-3 with gradients in files as well.
func TestElsewhereIsTheSame(t *testing.T) {
	for _, world := range []int{1, 2} {
		for _, strategy := range Strategies() {
			for _, s := range []setup{{dtype: device.F32}, {dtype: device.BF16}, {dtype: device.F16, spoil: 1}, {dtype: device.F32, kind: SGD}} {
				s.world, s.steps, s.model = world, 3, dataParallel(world)
				s.sharding = Sharding{Strategy: strategy, BucketSize: 150}
				t.Run(fmt.Sprintf("%d/%s/%s/%s", world, strategy, s.dtype, s.kind), func(t *testing.T) { sameElsewhere(t, s) })
			}
		}
	}
	t.Run("instances", func(t *testing.T) {
		sameElsewhere(t, setup{dtype: device.BF16, world: 4, steps: 3, model: instances, sharding: Sharding{Strategy: Optim}})
	})
}

// Claim: the same of a mixture, whose experts have a data group, buckets and shards of their own,
// in layouts of expert parallelism and with every sharding, also overlapping.
func TestExpertsElsewhereAreTheSame(t *testing.T) {
	for _, c := range []struct{ ranks, ep int }{{2, 1}, {2, 2}, {4, 2}} {
		for _, strategy := range Strategies() {
			for _, s := range []setup{{dtype: device.F32}, {dtype: device.BF16}} {
				s.world, s.steps, s.model, s.sharding = c.ranks, 3, expertParallel(c.ranks, c.ep), Sharding{Strategy: strategy, BucketSize: 150}
				s.sharding.OverlapGradReduce, s.sharding.OverlapParamGather = s.dtype == device.BF16, s.dtype == device.BF16
				t.Run(fmt.Sprintf("%d ranks/ep %d/%s/%s", c.ranks, c.ep, strategy, s.dtype), func(t *testing.T) { sameElsewhere(t, s) })
			}
		}
	}
}

// sameElsewhere trains s in memory, and with files; under ZeRO-3 twice: without and with the
// gradients.
func sameElsewhere(t *testing.T, s setup) {
	t.Helper()
	want, err := train(s)
	if err != nil {
		t.Fatal(err)
	}
	sameIn(t, s, want, false)
	if s.sharding.Strategy == OptimGradsParams {
		sameIn(t, s, want, true)
	}
}

func sameIn(t *testing.T, s setup, want outcome, gradients bool) {
	t.Helper()
	stored, dir := atomic.Int64{}, t.TempDir()
	s.elsewhere = func(rank int) Elsewhere {
		f := storesOf(t, dir, rank, s.world)
		store := func(purpose string, bytes int64) (device.Store, error) {
			stored.Add(bytes)
			return f(purpose, bytes)
		}
		return Elsewhere{Store: store, Parameters: s.sharding.Strategy == OptimGradsParams, Gradients: gradients, Piece: pageElements}
	}
	got, err := train(s)
	if err != nil {
		t.Fatal(err)
	}
	if stored.Load() == 0 {
		t.Fatal("nothing lay elsewhere")
	}
	if fmt.Sprint(got.results, got.norms) != fmt.Sprint(want.results, want.norms) {
		t.Errorf("results %v, norms %v; in memory %v, %v", got.results, got.norms, want.results, want.norms)
	}
	if err := got.state.sameAs(want.state, 0); err != nil {
		t.Error(err)
	}
	if err := got.grads.sameAs(want.grads, 0); err != nil {
		t.Errorf("gradients: %v", err)
	}
}

// storesOf makes files for a rank that is alone; several have memory, which is faster.
func storesOf(t *testing.T, dir string, rank, world int) func(string, int64) (device.Store, error) {
	if world > 1 {
		return func(_ string, bytes int64) (device.Store, error) { return offload.NewHost(bytes) }
	}
	f, err := offload.Open(dir, rank, world)
	if err != nil {
		t.Error(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f.Store
}

// failing is a store that does so many writes, or reads.
type failing struct {
	device.Store
	left *atomic.Int64
	read bool
}

var errDisk = errors.New("the disk is full")

func (f failing) ReadAt(dst []byte, at int64) error {
	if f.read && f.left.Add(-1) < 0 {
		return errDisk
	}
	return f.Store.ReadAt(dst, at)
}

func (f failing) WriteAt(src []byte, at int64) error {
	if !f.read && f.left.Add(-1) < 0 {
		return errDisk
	}
	return f.Store.WriteAt(src, at)
}

// TestElsewhereFails: whichever read or write fails, the run ends with that error, and does
// not hang.
func TestElsewhereFails(t *testing.T) {
	for _, c := range []struct{ read, gradients bool }{{}, {read: true}, {gradients: true}, {read: true, gradients: true}} {
		for after := int64(0); after < 40; after += 3 {
			var left atomic.Int64
			left.Store(after)
			s := setup{dtype: device.BF16, world: 1, steps: 4, model: dataParallel(1), sharding: Sharding{Strategy: OptimGradsParams}}
			s.elsewhere = func(int) Elsewhere {
				return Elsewhere{Parameters: true, Gradients: c.gradients, Piece: pageElements, Store: func(_ string, bytes int64) (device.Store, error) {
					h, err := offload.NewHost(bytes)
					return failing{h, &left, c.read}, err
				}}
			}
			if _, err := train(s); !errors.Is(err, errDisk) {
				t.Errorf("%+v, after %d: %v", c, after, err)
			}
		}
	}
}
