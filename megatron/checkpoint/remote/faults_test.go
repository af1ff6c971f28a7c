package remote_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"monotron/internal/store"
	"monotron/internal/store/storetest"
	"monotron/megatron/checkpoint/native"
	"monotron/megatron/checkpoint/remote"
)

// storm makes faults from one request of a save on.
type storm struct {
	mu    sync.Mutex
	from  int // the first request with a fault
	kind  storetest.Kind
	final bool // nothing is done after it, as after a kill; else some more requests have faults, by chance
	seen  int
	hit   int
	rand  *rand.Rand
}

func (s *storm) fault(*http.Request) storetest.Kind {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen++
	switch {
	case s.seen < s.from:
		return storetest.None
	case s.seen == s.from:
	case s.final:
		return storetest.Refused
	case s.rand.IntN(4) > 0:
		return storetest.None
	default:
		s.kind = 1 + storetest.Kind(s.rand.IntN(int(storetest.Kinds)-1))
	}
	s.hit++
	return s.kind
}

// Claim: whatever goes wrong with the requests of a save, at whichever of them the process is killed, what is fetched
// then is the checkpoint before or the new one, bit for bit; the new one where the save said so; and
// the next run saves and leaves nothing but checkpoints. MONOTRON_FAULTS sets the number of saves, MONOTRON_FAULTS_SEED the first one's seed.
func TestFaults(t *testing.T) {
	first, trials := number("MONOTRON_FAULTS_SEED", 0), number("MONOTRON_FAULTS", 150)
	server := storetest.New(t)
	saved, lost, faults := 0, 0, 0
	for seed := first; seed < first+trials; seed++ {
		ok, hit := trial(t, server, uint64(seed))
		faults += hit
		if ok {
			saved++
		} else {
			lost++
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("%d faults in %d saves (seeds %d to %d): %d saved, %d not; each time a complete checkpoint was fetched", faults, trials, first, first+trials-1, saved, lost)
	if faults < trials*3/4 || saved < trials/10 || lost < trials/10 {
		t.Error("the faults do not reach what they are for")
	}
}

// number is a variable of the environment.
func number(name string, usual int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return usual
}

// trial has one save go wrong. Its cases: a new iteration, one that is saved again with another content, and
// one that removes older checkpoints.
func trial(t *testing.T, server *storetest.Server, seed uint64) (ok bool, hit int) {
	random := rand.New(rand.NewPCG(seed, 7))
	server.Fault(nil)
	prefix := fmt.Sprintf("trial-%d", seed)
	open := func() (*remote.Remote, store.Store) { return remoteAt(t, prefix, quick, 24<<10) }
	here := scratch(t)
	defer os.RemoveAll(here)
	before, _ := open()
	for _, n := range []int64{10, 20} {
		if err := save(t, here, n, 1, before); err != nil {
			t.Fatal(err)
		}
	}
	old := scratch(t)
	defer os.RemoveAll(old)
	if _, err := before.Fetch(context.Background(), old, 20, func() {}); err != nil {
		t.Fatal(err)
	}
	next := []int64{30, 20, 30}[seed%3]
	r, _ := remoteAt(t, prefix, hurried, 24<<10)
	if seed%3 == 2 {
		r.KeepLast = 1
	}
	s := &storm{from: 1 + random.IntN(24), kind: 1 + storetest.Kind(random.IntN(int(storetest.Kinds)-1)), final: random.IntN(2) == 0, rand: random}
	server.Fault(s.fault)
	failed := save(t, here, next, 2, r)
	server.Fault(nil)
	if failed != nil && strings.Contains(failed.Error(), storetest.Secret) {
		t.Errorf("an error has the secret: %v", failed)
	}
	fetched(t, open, old, here, next, failed)
	after(t, open, here)
	return failed == nil, s.hit
}

// fetched checks what another host has after a save of iteration next.
func fetched(t *testing.T, open func() (*remote.Remote, store.Store), old, here string, next int64, failed error) {
	t.Helper()
	r, _ := open()
	there := scratch(t)
	defer os.RemoveAll(there)
	f, err := r.Fetch(context.Background(), there, -1, func() {})
	if err != nil || len(f.Notes) > 0 {
		t.Errorf("after %v: %+v, %v", failed, f, err)
		return
	}
	is := native.Path(there, f.Iteration)
	isNew := f.Iteration == next && same(native.Path(here, next), is) == nil
	isOld := f.Iteration == 20 && same(native.Path(old, 20), is) == nil
	if !isNew && (failed == nil || !isOld) {
		t.Errorf("after %v: iteration %d is fetched, which is neither the old nor the new one", failed, f.Iteration)
	}
}

// after checks that the next run saves, and that nothing is left but checkpoints.
func after(t *testing.T, open func() (*remote.Remote, store.Store), here string) {
	t.Helper()
	r, s := open()
	r.KeepLast = 1
	if _, err := r.Start(context.Background()); err != nil {
		t.Error(err)
	}
	if err := save(t, here, 40, 3, r); err != nil {
		t.Error(err)
	}
	want := "iter_0000040/manifest.json iter_0000040/rank_00000.safetensors latest_checkpointed_iteration.txt"
	if is := strings.Join(keys(t, s), " "); is != want {
		t.Errorf("the store has %s", is)
	}
	if n, err := s.Abort(context.Background(), ""); n != 0 || err != nil {
		t.Errorf("%d uploads are left, %v", n, err)
	}
}

// dying is a store of a process that is killed before one of its steps.
type dying struct {
	store.Store
	steps int // that are done
}

var errKilled = errors.New("killed")

func (d *dying) step() error {
	if d.steps--; d.steps < 0 {
		return errKilled
	}
	return nil
}

func (d *dying) Open(ctx context.Context, key string) (*store.File, error) {
	if err := d.step(); err != nil {
		return nil, err
	}
	return d.Store.Open(ctx, key)
}

func (d *dying) Put(ctx context.Context, key string, from io.ReaderAt, size int64, when store.When) (store.Object, error) {
	if err := d.step(); err != nil {
		return store.Object{}, err
	}
	return d.Store.Put(ctx, key, from, size, when)
}

func (d *dying) List(ctx context.Context, prefix string) ([]store.Object, error) {
	if err := d.step(); err != nil {
		return nil, err
	}
	return d.Store.List(ctx, prefix)
}

func (d *dying) Delete(ctx context.Context, key string) error {
	if err := d.step(); err != nil {
		return err
	}
	return d.Store.Delete(ctx, key)
}

// Claim: as TestFaults', for a kill before each step of a save, with each kind of store.
func TestKilledAtEveryStep(t *testing.T) {
	storetest.New(t)
	for kind, base := range map[string]func(name string) store.Store{
		"s3": func(name string) store.Store {
			s, err := store.Connect("s3://"+storetest.Bucket+"/"+name, store.Options{Patience: quick})
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		"folder": func(string) store.Store { return store.Folder{Root: scratch(t)} },
	} {
		for name, next := range map[string]int64{"new": 30, "again": 20} {
			t.Run(kind+" "+name, func(t *testing.T) {
				steps := 0
				for done := false; !done && !t.Failed(); steps++ {
					done = killedAfter(t, base(fmt.Sprintf("%s-%d", name, steps)), next, steps)
				}
				if steps < 8 {
					t.Errorf("a save of only %d steps", steps)
				}
			})
		}
	}
}

// killedAfter has a save of iteration next end after so many steps; done: it was complete before.
func killedAfter(t *testing.T, s store.Store, next int64, steps int) (done bool) {
	open := func() (*remote.Remote, store.Store) { return remote.New(s), s }
	here, old := scratch(t), scratch(t)
	before, _ := open()
	for _, n := range []int64{10, 20} {
		if err := save(t, here, n, 1, before); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := before.Fetch(context.Background(), old, 20, func() {}); err != nil {
		t.Fatal(err)
	}
	r := remote.New(&dying{s, steps})
	r.KeepLast = 1
	failed := save(t, here, next, 2, r)
	if failed != nil && !errors.Is(failed, errKilled) {
		t.Error(failed)
	}
	fetched(t, open, old, here, next, failed)
	after(t, open, here)
	return failed == nil
}

// Claim: whatever goes wrong with the requests of a fetch, the local folder has what it had, or the checkpoint that was asked
// for, bit for bit; the next fetch has it.
func TestFetchFaults(t *testing.T) {
	server := storetest.New(t)
	r, _ := newRemote(t)
	faulty, _ := remoteAt(t, "run", hurried, 8<<10)
	here := scratch(t)
	for _, n := range []int64{10, 20} {
		if err := save(t, here, n, 1, r); err != nil {
			t.Fatal(err)
		}
	}
	first, fetches, failed := number("MONOTRON_FAULTS_SEED", 0), number("MONOTRON_FAULTS", 60), 0
	for seed := first; seed < first+fetches; seed++ {
		random := rand.New(rand.NewPCG(uint64(seed), 8))
		dir := scratch(t)
		if seed%2 == 0 {
			if _, err := r.Fetch(context.Background(), dir, 10, func() {}); err != nil {
				t.Fatal(err)
			}
		}
		s := &storm{from: 1 + random.IntN(6), kind: 1 + storetest.Kind(random.IntN(int(storetest.Kinds)-1)), final: random.IntN(2) == 0, rand: random}
		server.Fault(s.fault)
		f, err := faulty.Fetch(context.Background(), dir, 20, func() {})
		server.Fault(nil)
		if err != nil {
			failed++
		}
		_, missing := os.Stat(native.Path(dir, 20))
		if err == nil && f.Iteration != 20 || missing == nil && same(native.Path(here, 20), native.Path(dir, 20)) != nil || missing != nil && err == nil {
			t.Errorf("fetch %d: %+v, %v, %v", seed, f, err, missing)
		}
		if seed%2 == 0 && same(native.Path(here, 10), native.Path(dir, 10)) != nil {
			t.Errorf("fetch %d: the checkpoint that was there is another", seed)
		}
		if f, err := r.Fetch(context.Background(), dir, -1, func() {}); err != nil || f.Iteration != 20 || same(native.Path(here, 20), native.Path(dir, 20)) != nil {
			t.Errorf("after fetch %d: %+v, %v", seed, f, err)
		}
		_ = os.RemoveAll(dir) // scratch removes what is left
	}
	if t.Logf("%d of %d fetches failed (seeds %d to %d)", failed, fetches, first, first+fetches-1); failed < fetches/10 || failed > fetches*9/10 {
		t.Error("the faults do not reach what they are for")
	}
}
