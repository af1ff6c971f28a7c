package memory

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/internal/system"
	"monotron/megatron/checkpoint"
	"monotron/mpu"
	"monotron/mpu/comm/inproc"
)

// hosts hold the segments of ranks, as launchers do.
type hosts [][]*os.File

func newHosts(t *testing.T, ranks int) hosts {
	t.Helper()
	h := make(hosts, ranks)
	for rank := range h {
		h.replace(t, rank)
	}
	return h
}

// replace is another host for a rank: its memory is gone.
func (h hosts) replace(t *testing.T, rank int) {
	t.Helper()
	h[rank] = nil
	for range Segments {
		f, err := system.SharedMemory("test")
		if err != nil {
			t.Skip(err)
		}
		t.Cleanup(func() { f.Close() })
		h[rank] = append(h[rank], f)
	}
}

// elements of rank's tensor: shards are of several sizes, some longer than what travels at once.
func elements(rank int) int64 { return int64(rank*200_000 + 37) }

// run is one process of each rank.
func (h hosts) run(t *testing.T, jump int, work func(rank int, s *Store, d *device.Device, x []mpu.Stored) error) {
	t.Helper()
	world := inproc.NewWorld(len(h))
	err := world.Run(func(rank int) error {
		d := ref.Open()
		defer d.Close()
		members := make([]int, len(h))
		for i := range members {
			members[i] = i
		}
		g, err := world.Group(rank, "all", members, d)
		if err != nil {
			return err
		}
		n := elements(rank)
		x := d.Arena.Zeroed(device.Parameters, device.F32, n)
		stored := []mpu.Stored{{Name: fmt.Sprint("x", rank), Global: []int64{n}, Tensor: x, Pieces: []mpu.Piece{{From: []int64{0}, Size: []int64{n}}}}}
		s, err := New(d, g, jump, stored, h[rank])
		if err != nil {
			return err
		}
		defer s.Close()
		return work(rank, s, d, stored)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func value(rank int, iteration int64) float64 { return float64(1000*rank) + float64(iteration) }

// save saves iterations, each by another process.
func (h hosts) save(t *testing.T, jump int, iterations ...int64) {
	t.Helper()
	h.run(t, jump, func(rank int, s *Store, d *device.Device, x []mpu.Stored) error {
		for i, it := range iterations {
			d.Fill(x[0].Tensor, value(rank, it))
			if err := s.Save(checkpoint.State{Iteration: it, ConsumedTrain: 8 * it}, x, uint64(100+i)); err != nil {
				return err
			}
		}
		return nil
	})
}

// load gives what is found and, where that is a checkpoint, checks that it is what was saved.
func (h hosts) load(t *testing.T, jump int) (found *Found, lacks string) {
	t.Helper()
	h.run(t, jump, func(rank int, s *Store, d *device.Device, x []mpu.Stored) error {
		f, why, err := s.Find()
		if rank == 0 {
			found, lacks = f, why
		}
		if err != nil || f == nil {
			return err
		}
		state, err := s.Load(f, x)
		if err != nil {
			return err
		}
		want := float32(value(rank, f.Iteration))
		if got := device.ReadSlice[float32](d, x[0].Tensor); slices.ContainsFunc(got, func(v float32) bool { return v != want }) {
			return fmt.Errorf("rank %d has %v, want %v", rank, got[:3], want)
		}
		if state.Iteration != f.Iteration || state.ConsumedTrain != 8*f.Iteration {
			return fmt.Errorf("rank %d: state %+v of iteration %d", rank, state, f.Iteration)
		}
		if f.Thin {
			return s.Save(state, x, 7)
		}
		return nil
	})
	return found, lacks
}

// Claim (docs/failures.md): a memory checkpoint is complete while no rank and its keeper are lost
// together, whatever the distance of the copies; what is loaded is what was saved, on ranks
// that have lost their host too, and then every shard is there twice again.
func TestLostHosts(t *testing.T) {
	for _, c := range []struct {
		jump     int
		lost     []int
		complete bool
	}{
		{0, nil, true}, {0, []int{2}, false},
		{1, []int{3}, true}, {1, []int{0, 2}, true}, {1, []int{1, 2}, false}, {1, []int{0, 3}, false},
		{2, []int{0, 1}, true}, {2, []int{2, 3}, true}, {2, []int{1, 2}, true}, {2, []int{1, 3}, false},
		{3, []int{0}, true}, {3, []int{0, 3}, false}, {3, []int{1, 3}, true},
	} {
		h := newHosts(t, 4)
		h.save(t, c.jump, 10, 20, 30)
		for _, rank := range c.lost {
			h.replace(t, rank)
		}
		found, lacks := h.load(t, c.jump)
		switch {
		case !c.complete && (found != nil || !strings.HasPrefix(lacks, "iteration 30 lacks the shards of rank")):
			t.Errorf("%+v: found %+v, lacks %q", c, found, lacks)
		case c.complete && (found == nil || found.Iteration != 30 || !slices.Equal(found.Lost, c.lost)):
			t.Errorf("%+v: found %+v, lacks %q", c, found, lacks)
		}
		if c.complete && c.lost != nil {
			if again, _ := h.load(t, c.jump); again == nil || again.Iteration != 30 || again.Thin {
				t.Errorf("%+v: after the first load: %+v", c, again)
			}
		}
	}
}

// Claim: a save that was cut short, or bytes that have changed, leave the checkpoint before it.
func TestDamaged(t *testing.T) {
	for name, damage := range map[string]func(s *Store){
		"cut short":      func(s *Store) { s.own[0].set(0, 0); s.kept[0].set(0, 0) },
		"tensors":        func(s *Store) { s.own[0].bytes[headerBytes+5]++; s.kept[0].bytes[headerBytes+5]++ },
		"about":          func(s *Store) { s.own[0].bytes[s.own[0].length()-1]++; s.kept[0].bytes[s.kept[0].length()-1]++ },
		"length":         func(s *Store) { s.own[0].set(8, 1<<60); s.kept[0].set(8, 1<<63) },
		"of another run": func(s *Store) { s.own[0].set(32, 1); s.kept[0].set(32, 2) },
	} {
		h := newHosts(t, 3)
		h.save(t, 1, 10, 20, 30) // 10 and 30 in generation 0
		h.run(t, 1, func(rank int, s *Store, _ *device.Device, _ []mpu.Stored) error {
			if rank > 0 { // both that have rank 1's shard
				damage(s)
			}
			return nil
		})
		if found, _ := h.load(t, 1); found == nil || found.Iteration != 20 {
			t.Errorf("%s: found %+v", name, found)
		}
	}
}

// Claim: another number of ranks, other copies and other tensors are not this run's.
func TestOtherLayout(t *testing.T) {
	h := newHosts(t, 4)
	h.save(t, 1, 10)
	if found, _ := h[:3].load(t, 1); found != nil {
		t.Errorf("3 ranks found %+v of 4", found)
	}
}

// Claim: launchers see the iteration without mapping anything.
func TestIteration(t *testing.T) {
	h := newHosts(t, 2)
	if n := Iteration(h[0][0]); n != -1 {
		t.Errorf("an empty segment has iteration %d", n)
	}
	h.save(t, 1, 10, 20)
	if a, b := Iteration(h[0][0]), Iteration(h[0][1]); a != 10 || b != 20 {
		t.Errorf("iterations %d and %d", a, b)
	}
}
