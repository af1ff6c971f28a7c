package ranks

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/internal/exitcode"
	"monotron/mpu/comm"
	"monotron/mpu/comm/failure"
	"monotron/mpu/health"
	"monotron/mpu/health/inject"
	"monotron/mpu/topology"
)

func openRef() (*device.Device, error) { return ref.Open(), nil }

// layout is tp 2, pp 2, dp 2 with as many copies of the optimizer's state as given.
func layout(instances int) topology.Sizes {
	return topology.Sizes{TP: 2, CP: 1, DP: 2, PP: 2, EP: 1, QueryGroups: 1, Instances: instances}
}

// sum adds 1 on every rank of a group.
func sum(r *Rank, g *comm.Group) (int64, error) {
	t := r.Device.Arena.Zeroed(device.Workspace, device.I64, 1)
	defer r.Device.Arena.Free(t)
	device.WriteSlice(r.Device, t, []int64{1})
	if err := g.AllReduce(t, comm.Sum).Wait(); err != nil {
		return 0, err
	}
	return device.ReadSlice[int64](r.Device, t)[0], r.Device.Sync()
}

// Claim: a rank is in the group of every kind that topology lists for it, by that
// kind's name, and in no other; late joining comes to the same; all groups work.
func TestGroupsAreTopologys(t *testing.T) {
	for _, instances := range []int{1, 2} {
		for _, late := range []bool{false, true} {
			c := Config{Sizes: layout(instances), Kinds: topology.Kinds(), Open: openRef, Timeout: time.Minute}
			if late {
				c.Kinds = nil
			}
			err := Run(c, func(r *Rank) error {
				if err := r.Join(topology.Kinds()...); err != nil {
					return err
				}
				for _, kind := range topology.Kinds() {
					if err := checkGroup(r, kind); err != nil {
						return fmt.Errorf("%s: %w", kind, err)
					}
				}
				n, err := sum(r, r.Saves)
				if err == nil && n != 8 {
					err = fmt.Errorf("%d ranks save", n)
				}
				return err
			})
			if err != nil {
				t.Errorf("%d instances, joined late %v: %v", instances, late, err)
			}
		}
	}
}

func checkGroup(r *Rank, kind topology.Kind) error {
	members, g := r.Sizes.Group(kind, r.Number), r.Groups[kind]
	if members == nil {
		if g != nil {
			return fmt.Errorf("rank %d is in a group of %d", r.Number, g.Size())
		}
		return nil
	}
	if g.Name() != string(kind) || g.Size() != len(members) || g.Rank() != slices.Index(members, r.Number) {
		return fmt.Errorf("rank %d is number %d of %d in %s, want %v", r.Number, g.Rank(), g.Size(), g.Name(), members)
	}
	n, err := sum(r, g)
	if err == nil && n != int64(len(members)) {
		err = fmt.Errorf("rank %d counts %d members of %d", r.Number, n, len(members))
	}
	return err
}

// Claim: a rank that is alone is in a group of one of each kind, but for copies of an
// optimizer state, of which there is one.
func TestAlone(t *testing.T) {
	r := Alone(ref.Open())
	for _, kind := range topology.Kinds() {
		several := kind == topology.Shard || kind == topology.Across
		if g := r.Groups[kind]; (g == nil) != several || (g != nil && g.Size() != 1) {
			t.Errorf("%s: %v", kind, g)
		}
	}
	if !r.First() || !r.Last() || r.World().Size() != 1 || r.Saves.Size() != 1 {
		t.Errorf("%+v", r)
	}
}

// Claim (docs/failures.md): the error is that of the rank that failed, and every
// device is closed once all have ended.
func TestFirstFailure(t *testing.T) {
	failed := exitcode.Errorf(exitcode.BadData, "sample 7 is torn")
	var mu sync.Mutex
	var all []*Rank
	for name, w := range map[string]*Watch{"unwatched": nil, "watched": {Folder: t.TempDir(), Note: t.Logf}} {
		all = nil
		err := Run(Config{Sizes: layout(1), Open: openRef, Timeout: time.Minute, Watch: w}, func(r *Rank) error {
			mu.Lock()
			all = append(all, r)
			mu.Unlock()
			r.Enter(health.Data, 1)
			r.Device.Arena.Zeroed(device.Workspace, device.I64, 1) // never freed by itself
			if r.Number == 5 {
				return failed
			}
			_, err := sum(r, r.World())
			return err
		})
		if !errors.Is(err, failed) && !strings.Contains(fmt.Sprint(err), "rank 5") || exitcode.CodeOf(err) != exitcode.BadData || !strings.Contains(err.Error(), "sample 7 is torn") {
			t.Errorf("%s: %v", name, err)
		}
		for _, r := range all {
			if use := r.Device.Arena.Usage(); use.Allocated != 0 {
				t.Errorf("%s: rank %d's device still holds %d bytes", name, r.Number, use.Allocated)
			}
		}
		if w == nil {
			continue
		}
		v, err := failure.Read(w.Folder)
		if err != nil || v.Rank != 5 || v.Kind != failure.Own {
			t.Errorf("verdict %+v, %v", v, err)
		}
	}
}

// Claim: an injected end of a rank ends the run, not the process, with the verdict of a
// death.
func TestInjectedEnd(t *testing.T) {
	faults, err := inject.Parse([]string{"exit:rank=1:step=3:phase=data:code=9"})
	if err != nil {
		t.Fatal(err)
	}
	s := topology.Sizes{TP: 1, CP: 1, DP: 2, PP: 1, EP: 1}
	err = Run(Config{Sizes: s, Open: openRef, Timeout: time.Minute, Watch: &Watch{Faults: faults, Note: t.Logf}}, func(r *Rank) error {
		for step := range int64(5) {
			r.Enter(health.Data, step+1)
			if _, err := sum(r, r.World()); err != nil {
				return err
			}
		}
		return nil
	})
	var v *failure.Verdict
	if !errors.As(err, &v) || v.Kind != failure.Death || v.Rank != 1 || v.Step != 3 || exitcode.CodeOf(err) != 9 {
		t.Errorf("%v", err)
	}
}

// Claim: ranks that do not notice the end of the run are left behind, and the error is
// the verdict; those that do notice are waited for.
func TestLeftBehind(t *testing.T) {
	lost := make(chan *failure.Verdict, 1)
	verdict := &failure.Verdict{Kind: failure.Stall, Code: exitcode.Internal, Text: "rank 3 is lost in thought"}
	stuck := make(chan struct{})
	defer close(stuck)
	lost <- verdict
	if err, left := await(func() error { <-stuck; return nil }, lost, time.Millisecond); !left || !errors.Is(err, error(verdict)) {
		t.Errorf("stuck ranks: left %v, %v", left, err)
	}
	lost <- verdict
	if err, left := await(func() error { return os.ErrClosed }, lost, time.Minute); left || !errors.Is(err, os.ErrClosed) {
		t.Errorf("ranks that end: left %v, %v", left, err)
	}
}
