package optimizer

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/megatron/optimizer/offload"
	"monotron/mpu"
)

// TestOffloadedIsTheSame: state in files has, after some steps, the bits of state in
// memory: values, main parameters, moments, norms, with every optimizer, dtype and sharding, also
// where a step is skipped; under ZeRO-3 with gradients in files as well.
func TestOffloadedIsTheSame(t *testing.T) {
	for _, world := range []int{1, 2} {
		for _, strategy := range Strategies() {
			for _, s := range []setup{{dtype: device.F32}, {dtype: device.BF16}, {dtype: device.F16, spoil: 1}, {dtype: device.F32, kind: SGD}} {
				s.world, s.steps, s.model = world, 3, dataParallel(world)
				s.sharding = Sharding{Strategy: strategy, BucketSize: 150}
				t.Run(fmt.Sprintf("%d/%s/%s/%s", world, strategy, s.dtype, s.kind), func(t *testing.T) { sameOffloaded(t, s) })
			}
		}
	}
	t.Run("instances", func(t *testing.T) {
		sameOffloaded(t, setup{dtype: device.BF16, world: 4, steps: 3, model: instances, sharding: Sharding{Strategy: Optim}})
	})
}

// Claim: the same of a mixture, whose experts have a data group, buckets and shards of their own,
// in layouts of expert parallelism and with every sharding, also overlapping.
func TestOffloadedExpertsAreTheSame(t *testing.T) {
	for _, c := range []struct{ ranks, ep int }{{2, 1}, {2, 2}, {4, 2}} {
		for _, strategy := range Strategies() {
			for _, s := range []setup{{dtype: device.F32}, {dtype: device.BF16}} {
				s.world, s.steps, s.model, s.sharding = c.ranks, 3, expertParallel(c.ranks, c.ep), Sharding{Strategy: strategy, BucketSize: 150}
				s.sharding.OverlapGradReduce, s.sharding.OverlapParamGather = s.dtype == device.BF16, s.dtype == device.BF16
				t.Run(fmt.Sprintf("%d ranks/ep %d/%s/%s", c.ranks, c.ep, strategy, s.dtype), func(t *testing.T) { sameOffloaded(t, s) })
			}
		}
	}
}

// Claim: whatever fraction of the state is offloaded, the bits are those of state in memory;
// and as many elements are offloaded as the rule says.
func TestAnyOffloadedFractionIsTheSame(t *testing.T) {
	for _, world := range []int{1, 2} {
		for _, strategy := range Strategies() {
			for _, dtype := range []device.DType{device.F32, device.BF16} {
				s := setup{world: world, steps: 2, dtype: dtype, model: dataParallel(world), sharding: Sharding{Strategy: strategy, BucketSize: 150}}
				t.Run(fmt.Sprintf("%d/%s/%s", world, strategy, dtype), func(t *testing.T) { sameFractions(t, s) })
			}
		}
	}
	t.Run("experts", func(t *testing.T) {
		sameFractions(t, setup{world: 4, steps: 2, dtype: device.BF16, model: expertParallel(4, 2), sharding: Sharding{Strategy: Optim, BucketSize: 150}})
	})
	t.Run("skipped", func(t *testing.T) {
		sameFractions(t, setup{world: 2, steps: 3, dtype: device.F16, spoil: 1, model: dataParallel(2), sharding: Sharding{Strategy: Optim}})
	})
	t.Run("sgd", func(t *testing.T) {
		sameFractions(t, setup{world: 1, steps: 2, dtype: device.F32, kind: SGD, model: dataParallel(1)})
	})
}

func sameFractions(t *testing.T, s setup) {
	t.Helper()
	want, err := train(s)
	if err != nil {
		t.Fatal(err)
	}
	last := int64(0)
	for _, fraction := range []float64{1e-9, 0.3, 0.5, 0.9, 1} {
		var stored atomic.Int64
		s.offloaded = func(int) Offloaded {
			return Offloaded{Fraction: fraction, Piece: pageElements, Store: func(_ string, bytes int64) (device.Store, error) {
				stored.Add(bytes)
				return offload.NewHost(bytes)
			}}
		}
		got, err := train(s)
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(got.results, got.norms) != fmt.Sprint(want.results, want.norms) {
			t.Errorf("%g: results %v, norms %v; in memory %v, %v", fraction, got.results, got.norms, want.results, want.norms)
		}
		if err := cmp.Or(got.state.sameAs(want.state, 0), got.grads.sameAs(want.grads, 0)); err != nil {
			t.Errorf("%g: %v", fraction, err)
		}
		last = stored.Load()
	}
	if last == 0 {
		t.Error("nothing lay elsewhere")
	}
}

// Claim: parameters are offloaded in the order of the groups (those with weight decay first, where
// the model begins with one), until the offloaded ones have the fraction of the elements; the one that crosses
// the mark is included (Megatron-LM, HybridDeviceOptimizer). A bucket's parts cover it, each parameter in one.
func TestFractionRule(t *testing.T) {
	sizes := []int64{700, 10, 300, 20, 500, 30} // every second one without decay
	var params []*mpu.Param
	for i, n := range sizes {
		params = append(params, &mpu.Param{Name: fmt.Sprint(i), Shape: []int64{n}, NoDecay: i%2 == 1, Owner: true})
	}
	for _, c := range []struct {
		fraction float64
		gone     string
	}{{1e-9, "0"}, {700. / 1560, "0"}, {701. / 1560, "0 2"}, {0.5, "0 2"}, {0.7, "0 2 4"}, {1505. / 1560, "0 1 2 4"}, {0.99, "0 1 2 3 4 5"}} {
		d := ref.Open()
		o := New(d, toyConfig(""), params, device.BF16, Groups{}, Sharding{BucketSize: 900, Offloaded: Offloaded{Fraction: c.fraction,
			Store: func(_ string, bytes int64) (device.Store, error) { return offload.NewHost(bytes) }}})
		var gone []string
		for _, s := range o.segments {
			if s.main.Offloaded() != s.part.away || s.m.Offloaded() != s.part.away || s.start < s.part.from || s.start+s.n > s.part.from+s.part.n {
				t.Errorf("%g: %s: %+v in %+v", c.fraction, s.param.Name, s, s.part)
			}
			if s.part.away {
				gone = append(gone, s.param.Name)
			}
		}
		if got := strings.Join(gone, " "); got != c.gone {
			t.Errorf("%g: %s are elsewhere, want %s", c.fraction, got, c.gone)
		}
		for _, b := range o.buckets {
			at := int64(0)
			for _, p := range b.parts {
				if p.from != at || p.n == 0 {
					t.Errorf("%g: a part from %d with %d elements, at %d", c.fraction, p.from, p.n, at)
				}
				at += p.n
			}
			if at != b.own.n {
				t.Errorf("%g: parts of %d elements of %d", c.fraction, at, b.own.n)
			}
		}
		d.Close()
	}
}

// sameOffloaded trains s in memory, and with files; under ZeRO-3 twice: without and with the
// gradients.
func sameOffloaded(t *testing.T, s setup) {
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
	s.offloaded = func(rank int) Offloaded {
		f := storesOf(t, dir, rank, s.world)
		store := func(purpose string, bytes int64) (device.Store, error) {
			stored.Add(bytes)
			return f(purpose, bytes)
		}
		return Offloaded{Store: store, Parameters: s.sharding.Strategy == OptimGradsParams, Gradients: gradients, Piece: pageElements}
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

// TestOffloadedFails: whichever read or write fails, the run ends with that error, and does
// not hang.
func TestOffloadedFails(t *testing.T) {
	for _, c := range []struct{ read, gradients bool }{{}, {read: true}, {gradients: true}, {read: true, gradients: true}} {
		for after := int64(0); after < 40; after += 3 {
			var left atomic.Int64
			left.Store(after)
			s := setup{dtype: device.BF16, world: 1, steps: 4, model: dataParallel(1), sharding: Sharding{Strategy: OptimGradsParams}}
			s.offloaded = func(int) Offloaded {
				return Offloaded{Parameters: true, Gradients: c.gradients, Piece: pageElements, Store: func(_ string, bytes int64) (device.Store, error) {
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
