package remote_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/internal/exitcode"
	"monotron/internal/store"
	"monotron/internal/store/storetest"
	"monotron/megatron/checkpoint/native"
	"monotron/megatron/checkpoint/remote"
	"monotron/mpu"
)

// quick is a patience for tests; few attempts, so that some faults are final.
var quick = store.Patience{Attempts: 3, Wait: time.Microsecond, MaxWait: time.Microsecond, Deadline: 5 * time.Second, Floor: 1 << 20}

// hurried is one for a server whose answers come late.
var hurried = store.Patience{Attempts: 3, Wait: time.Microsecond, MaxWait: time.Microsecond, Deadline: 300 * time.Millisecond, Floor: 1 << 20}

// newRemote is a remote save folder of the running server.
func newRemote(t testing.TB) (*remote.Remote, store.Store) { return remoteAt(t, "run", quick, 8<<10) }

func remoteAt(t testing.TB, prefix string, p store.Patience, part int64) (*remote.Remote, store.Store) {
	t.Helper()
	s, err := store.Connect("s3://"+storetest.Bucket+"/"+prefix, store.Options{Patience: p, PartBytes: part})
	if err != nil {
		t.Fatal(err)
	}
	return remote.New(s), s
}

// save writes a local checkpoint of 20,000 elements, whose content is seed's, as a run does that copies it.
func save(t testing.TB, dir string, iteration int64, seed uint64, r *remote.Remote) error {
	t.Helper()
	d := ref.Open()
	defer d.Arena.Close()
	const n = 20_000
	buf := d.Arena.Alloc(device.Parameters, device.F32, n)
	raw := make([]byte, 4*n)
	random := rand.New(rand.NewPCG(seed, uint64(iteration)))
	for i := range raw {
		raw[i] = byte(random.Uint32())
	}
	d.Write(buf, raw)
	list := []mpu.Stored{{Name: "model.weight", Tensor: buf, Global: []int64{n}, Pieces: []mpu.Piece{{From: []int64{0}, Size: []int64{n}}}, Write: true}}
	o := native.SaveOptions{}
	if r != nil {
		o.Copy, o.KeepLast = r.Save, r.KeepLast
	}
	_, err := native.Save(context.Background(), dir, native.State{Iteration: iteration, Seed: seed, Version: "test"}, list, d, o)
	return err
}

// same compares two checkpoints file by file.
func same(a, b string) error {
	count := 0
	err := filepath.WalkDir(a, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(a, path)
		x, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		y, err := os.ReadFile(filepath.Join(b, rel))
		if count++; err == nil && !bytes.Equal(x, y) {
			err = fmt.Errorf("%s differs", rel)
		}
		return err
	})
	if err == nil && count < 2 {
		err = fmt.Errorf("%s has %d files", a, count)
	}
	return err
}

// scratch is a folder in memory where the system has one.
func scratch(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "remote-test-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func keys(t testing.TB, s store.Store) (names []string) {
	list, err := s.List(context.Background(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range list {
		names = append(names, o.Key)
	}
	return names
}

// Claim: what a run saves is in the store as in its folder, --keep-last holds in both, and another host
// fetches the latest, or a given one, bit for bit.
func TestSaveAndFetch(t *testing.T) {
	storetest.New(t)
	r, s := newRemote(t)
	r.KeepLast = 2
	ctx, here := context.Background(), scratch(t)
	for _, n := range []int64{10, 20, 30} {
		if err := save(t, here, n, 1, r); err != nil {
			t.Fatal(err)
		}
	}
	want := "iter_0000020/manifest.json iter_0000020/rank_00000.safetensors iter_0000030/manifest.json iter_0000030/rank_00000.safetensors latest_checkpointed_iteration.txt"
	if is := strings.Join(keys(t, s), " "); is != want {
		t.Errorf("the store has %s", is)
	}
	if list, err := native.List(here); err != nil || len(list) != 2 {
		t.Error(list, err)
	}
	other, there := newRemote(t)
	_ = there
	dir := scratch(t)
	f, err := other.Fetch(ctx, dir, -1, func() {})
	if err != nil || f.Iteration != 30 || f.Bytes < 80_000 || len(f.Notes) > 0 {
		t.Fatalf("%+v, %v", f, err)
	}
	if n, err := native.Latest(dir); n != 30 || err != nil {
		t.Error(n, err)
	}
	if err := same(native.Path(here, 30), native.Path(dir, 30)); err != nil {
		t.Error(err)
	}
	if f, err = other.Fetch(ctx, dir, -1, func() {}); err != nil || f.Bytes != 0 {
		t.Errorf("a second fetch: %+v, %v", f, err)
	}
	if f, err = other.Fetch(ctx, dir, 20, func() {}); err != nil || f.Iteration != 20 || same(native.Path(here, 20), native.Path(dir, 20)) != nil {
		t.Errorf("%+v, %v", f, err)
	}
	if _, err = other.Fetch(ctx, dir, 10, func() {}); exitcode.CodeOf(err) != exitcode.NoInput || !strings.Contains(err.Error(), "20, 30") {
		t.Error(err)
	}
}

// Claim: an iteration that is saved again with another content gets a version of its own; the old one is complete until
// the new one is, and then gone. The same content is not sent again.
func TestSavedAgain(t *testing.T) {
	server := storetest.New(t)
	r, s := newRemote(t)
	here := scratch(t)
	if err := errors.Join(save(t, here, 10, 1, r), save(t, here, 10, 2, r)); err != nil {
		t.Fatal(err)
	}
	want := "iter_0000010.2/manifest.json iter_0000010.2/rank_00000.safetensors latest_checkpointed_iteration.txt"
	if is := strings.Join(keys(t, s), " "); is != want {
		t.Errorf("the store has %s", is)
	}
	dir := scratch(t)
	if f, err := r.Fetch(context.Background(), dir, -1, func() {}); err != nil || f.Iteration != 10 || same(native.Path(here, 10), native.Path(dir, 10)) != nil {
		t.Errorf("%+v, %v", f, err)
	}
	puts := 0
	server.Fault(func(q *http.Request) storetest.Kind {
		if q.Method == http.MethodPut {
			puts++
		}
		return storetest.None
	})
	if err := r.Save(context.Background(), native.Path(here, 10)); err != nil || puts != 0 {
		t.Errorf("%d puts, %v", puts, err)
	}
}

// Claim: of two runs that save to one URL, the second to move the tracker ends with an error that says so.
func TestTwoRuns(t *testing.T) {
	storetest.New(t)
	a, _ := newRemote(t)
	b, _ := newRemote(t)
	for _, r := range []*remote.Remote{a, b} {
		if _, err := r.Start(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if err := save(t, scratch(t), 10, 1, a); err != nil {
		t.Fatal(err)
	}
	if err := save(t, scratch(t), 20, 2, b); err == nil || !strings.Contains(err.Error(), "another run") || exitcode.CodeOf(err) != exitcode.IO {
		t.Error(err)
	}
}

// Claim: a damaged object is noticed when it is fetched, and the checkpoint before it is taken, with a note.
func TestDamagedIsNotTaken(t *testing.T) {
	storetest.New(t)
	r, s := newRemote(t)
	ctx, here := context.Background(), scratch(t)
	if err := errors.Join(save(t, here, 10, 1, r), save(t, here, 20, 1, r)); err != nil {
		t.Fatal(err)
	}
	key := "iter_0000020/rank_00000.safetensors"
	content, _, err := store.ReadAll(ctx, s, key, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	content[50_000] ^= 1
	if _, err := store.PutBytes(ctx, s, key, content, store.When{}); err != nil {
		t.Fatal(err)
	}
	dir := scratch(t)
	f, err := r.Fetch(ctx, dir, -1, func() {})
	if err != nil || f.Iteration != 10 || len(f.Notes) != 1 || !strings.Contains(f.Notes[0], "checksum") {
		t.Fatalf("%+v, %v", f, err)
	}
	if n, err := native.Latest(dir); n != 10 || err != nil {
		t.Error(n, err)
	}
	if _, err := r.Fetch(ctx, dir, 20, func() {}); err == nil {
		t.Error("a damaged one that was asked for is taken")
	}
}

// Claim: of ranks that fetch to one folder at once, one does.
func TestFetchedOnce(t *testing.T) {
	server := storetest.New(t)
	r, _ := newRemote(t)
	if err := save(t, scratch(t), 10, 1, r); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	ranges := 0
	server.Fault(func(q *http.Request) storetest.Kind {
		mu.Lock()
		defer mu.Unlock()
		if q.Method == http.MethodGet && strings.HasSuffix(q.URL.Path, ".safetensors") {
			ranges++
		}
		return storetest.None
	})
	dir := scratch(t)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			other, _ := newRemote(t)
			if f, err := other.Fetch(context.Background(), dir, -1, func() {}); err != nil || f.Iteration != 10 {
				t.Error(f, err)
			}
		})
	}
	group.Wait()
	if ranges != 1 {
		t.Errorf("the tensors were asked for %d times", ranges)
	}
}

// Claim: loading from an empty URL finds nothing: native.ErrNone.
func TestNone(t *testing.T) {
	storetest.New(t)
	r, _ := newRemote(t)
	if _, err := r.Fetch(context.Background(), scratch(t), -1, func() {}); !errors.Is(err, native.ErrNone) || exitcode.CodeOf(err) != exitcode.NoInput {
		t.Error(err)
	}
}
