package optimizer

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"monotron/csrc/device"
	"monotron/mpu"
	"monotron/mpu/comm/inproc"
)

const toyExperts = 4

func expertName(l, e int) string {
	return fmt.Sprintf("decoder.layers.%d.mlp.experts.local_experts.%d.linear_fc1.weight", l, e)
}

// expertParallel is the toy on data-parallel ranks with two layers of experts, which are
// cut over `ep` of them; the first rank of a group also has more, so that shards are
// uneven between families.
func expertParallel(ranks, ep int) func(*inproc.World, int, *device.Device) (*toy, error) {
	return func(w *inproc.World, me int, d *device.Device) (*toy, error) {
		m, err := dataParallel(ranks)(w, me, d)
		if err != nil {
			return nil, err
		}
		first := me / ep * ep
		var edp []int
		for r := me % ep; r < ranks; r += ep {
			edp = append(edp, r)
		}
		for r := first; r < first+ep; r++ {
			m.peers = append(m.peers, r)
		}
		data, err := group(w, me, "edp", edp, d)
		if err != nil {
			return nil, err
		}
		m.groups.Families[mpu.Experts] = Family{Data: data}
		each := toyExperts / ep
		for l := range 2 {
			for e := me % ep * each; e < (me%ep+1)*each; e++ {
				p := mpu.Uncut(expertName(l, e), mpu.Init{Std: 0.5}, 7, int64(9+e))
				p.Family = mpu.Experts
				m.units[1+l] = append(m.units[1+l], p)
			}
		}
		m.nameUnits()
		return m, nil
	}
}

// Claim: parameters cut over expert-parallel ranks, with their own data group, buckets and
// share of the norm, have the bits of one rank's under every sharding; each element is
// counted once and written once.
func TestExpertFamilyIsOneRank(t *testing.T) {
	for _, dtype := range []device.DType{device.F32, device.BF16} {
		want, err := train(setup{dtype: dtype, exact: true, steps: 3, model: expertParallel(1, 1), world: 1})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct{ ranks, ep int }{{2, 1}, {2, 2}, {4, 2}, {4, 4}} {
			for _, sharding := range shardings() {
				got, err := train(setup{dtype: dtype, exact: true, steps: 3, model: expertParallel(c.ranks, c.ep), world: c.ranks, sharding: sharding})
				if err == nil {
					err = equalOutcome(got, want, 0)
				}
				if err != nil {
					t.Errorf("%s, %d ranks, ep %d, %+v: %v", dtype, c.ranks, c.ep, sharding, err)
				}
			}
		}
	}
}

// Claim: the same without exact sums, to the rounding that TestShardingToRounding states.
func TestExpertFamilyToRounding(t *testing.T) {
	want, err := train(setup{dtype: device.F32, steps: 3, model: expertParallel(1, 1), world: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, sharding := range shardings() {
		got, err := train(setup{dtype: device.F32, steps: 3, model: expertParallel(4, 2), world: 4, sharding: sharding})
		if err == nil {
			err = equalOutcome(got, want, 1e-6)
		}
		if err != nil {
			t.Errorf("%+v: %v", sharding, err)
		}
	}
}

// frozen is a toy of which only biases and the experts' or layers' matrices of layer 0 are
// trained.
func frozen(model func(*inproc.World, int, *device.Device) (*toy, error)) func(*inproc.World, int, *device.Device) (*toy, error) {
	return func(w *inproc.World, rank int, d *device.Device) (*toy, error) {
		m, err := model(w, rank, d)
		if err == nil {
			m.freeze(isFrozen)
		}
		return m, err
	}
}

func isFrozen(name string) bool {
	return !strings.HasSuffix(name, ".bias") && !strings.HasPrefix(name, "decoder.layers.0.mlp.")
}

// Claim: frozen parameters keep their first values, count in no norm of gradients, have
// neither gradient, main parameter nor moment, and the others train as on one rank, under every
// sharding.
func TestFrozenParameters(t *testing.T) {
	for _, dtype := range []device.DType{device.F32, device.BF16} {
		start, err := train(setup{dtype: dtype, exact: true, model: expertParallel(1, 1), world: 1, steps: 1})
		if err != nil {
			t.Fatal(err)
		}
		want, err := train(setup{dtype: dtype, exact: true, steps: 3, model: frozen(expertParallel(1, 1)), world: 1})
		if err != nil {
			t.Fatal(err)
		}
		if err := onlyTrained(want); err != nil {
			t.Errorf("%s: %v", dtype, err)
		}
		first, err := train(setup{dtype: dtype, exact: true, steps: 1, model: frozen(expertParallel(1, 1)), world: 1})
		if err != nil {
			t.Fatal(err)
		}
		if first.results[0].GradNorm >= start.results[0].GradNorm {
			t.Errorf("%s: the norm with frozen parameters is %g, of all %g", dtype, first.results[0].GradNorm, start.results[0].GradNorm)
		}
		for name, values := range want.state {
			if p, ok := strings.CutPrefix(name, StoredModel); ok && isFrozen(p) != slices.Equal(values, first.state[name]) {
				t.Errorf("%s: %s, frozen %t, after 1 step and after 3: %.3g, %.3g ...", dtype, name, isFrozen(p), first.state[name][0], values[0])
			}
		}
		for _, sharding := range shardings() {
			got, err := train(setup{dtype: dtype, exact: true, steps: 3, model: frozen(expertParallel(4, 2)), world: 4, sharding: sharding})
			if err == nil {
				err = equalOutcome(got, want, 0)
			}
			if err != nil {
				t.Errorf("%s, %+v: %v", dtype, sharding, err)
			}
		}
	}
}

// onlyTrained checks that frozen parameters have no state, and that the others have theirs.
func onlyTrained(o outcome) error {
	for name := range o.grads {
		if isFrozen(name) {
			return fmt.Errorf("%s has a gradient", name)
		}
	}
	for name := range o.state {
		bare, isValue := strings.CutPrefix(name, StoredModel)
		if isValue || bare == "steps" {
			continue
		}
		for _, prefix := range []string{StoredMain, StoredExpM, StoredExpV} {
			if p, ok := strings.CutPrefix(name, prefix); ok && isFrozen(p) {
				return fmt.Errorf("%s is kept", name)
			}
		}
	}
	trained := expertName(0, 1)
	if o.grads[trained] == nil || o.state[StoredExpM+trained] == nil {
		return fmt.Errorf("%s has no gradient or no moment", trained)
	}
	return nil
}
