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
// where a step is skipped.
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
	t.Run("experts", func(t *testing.T) {
		sameElsewhere(t, setup{dtype: device.BF16, world: 4, steps: 3, model: instances, sharding: Sharding{Strategy: Optim}})
	})
}

func sameElsewhere(t *testing.T, s setup) {
	want, err := train(s)
	if err != nil {
		t.Fatal(err)
	}
	stored, dir := atomic.Int64{}, t.TempDir()
	s.elsewhere = func(rank int) Elsewhere {
		f, err := offload.Open(dir, rank, s.world)
		if err != nil {
			t.Error(err)
		}
		t.Cleanup(func() {
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		})
		store := func(purpose string, bytes int64) (device.Store, error) {
			stored.Add(bytes)
			return f.Store(purpose, bytes)
		}
		return Elsewhere{Store: store, Parameters: s.sharding.Strategy == OptimGradsParams, Piece: pageElements}
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
	for _, read := range []bool{false, true} {
		for after := int64(0); after < 40; after += 3 {
			var left atomic.Int64
			left.Store(after)
			s := setup{dtype: device.BF16, world: 1, steps: 4, model: dataParallel(1), sharding: Sharding{Strategy: OptimGradsParams}}
			s.elsewhere = func(int) Elsewhere {
				return Elsewhere{Parameters: true, Piece: pageElements, Store: func(_ string, bytes int64) (device.Store, error) {
					h, err := offload.NewHost(bytes)
					return failing{h, &left, read}, err
				}}
			}
			if _, err := train(s); !errors.Is(err, errDisk) {
				t.Errorf("read %v, after %d: %v", read, after, err)
			}
		}
	}
}
