package offload

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
)

func open(t *testing.T, dir string, rank, world int) *Folder {
	t.Helper()
	f, err := Open(dir, rank, world)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func names(t *testing.T, dir string) string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range list {
		all = append(all, e.Name())
	}
	return strings.Join(all, " ")
}

// TestFileIsMemory: reads and writes of any length at any offset, in one stream and in several,
// past the page cache and through it, are those of a slice.
func TestFileIsMemory(t *testing.T) {
	f := open(t, t.TempDir(), 3, 4)
	const size = 9 << 20
	store, err := f.Store("values", size)
	if err != nil {
		t.Fatal(err)
	}
	random, want, buf := rand.New(rand.NewPCG(1, 2)), make([]byte, size), device.Pages(size)
	for i := range 300 {
		at, n := random.IntN(size), 1+random.IntN([]int{100, 10_000, size}[i%3])
		if i%2 == 0 {
			at, n = at&^(device.PageSize-1), (n+device.PageSize-1)&^(device.PageSize-1)
		}
		n = min(n, size-at)
		part := buf[i%2*(at%64):][:min(n, size-at%64)]
		if random.IntN(2) == 0 {
			for k := range part {
				part[k] = byte(random.Uint32())
			}
			copy(want[at:], part)
			err = store.WriteAt(part, int64(at))
		} else if err = store.ReadAt(part, int64(at)); !bytes.Equal(part, want[at:at+len(part)]) {
			t.Fatalf("%d bytes at %d are not what was written", len(part), at)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestFolderIsOnesOwn: while a rank has its files another run's rank of that number is
// refused; a clean end leaves nothing.
func TestFolderIsOnesOwn(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "folder")
	f := open(t, dir, 0, 2)
	if _, err := f.Store("main", device.PageSize); err != nil {
		t.Fatal(err)
	}
	other := open(t, dir, 1, 2)
	if _, err := Open(dir, 0, 2); exitcode.CodeOf(err) != exitcode.IO || !strings.Contains(err.Error(), "another run uses the files of rank 0 in this folder") {
		t.Errorf("%v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if left := names(t, dir); left != "" {
		t.Errorf("%s is left", left)
	}
}

// TestWhatAKilledRunLeft is overwritten, or taken away where this run has no such rank.
func TestWhatAKilledRunLeft(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"rank_00000.lock", "rank_00000.main", "rank_00005.lock", "rank_00005.exp_avg", "mine.txt"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("old"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	f := open(t, dir, 0, 2)
	store, err := f.Store("main", device.PageSize)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 3)
	if err := store.ReadAt(b, 0); err != nil || b[0] != 0 {
		t.Errorf("a new file begins with %q, %v", b, err)
	}
	if left := names(t, dir); left != "mine.txt rank_00000.lock rank_00000.main" {
		t.Errorf("there is %s", left)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestNoSpace: a file that does not fit on the disk is refused before the first step, and
// the error says what, where and how much.
func TestNoSpace(t *testing.T) {
	f := open(t, t.TempDir(), 7, 8)
	_, err := f.Store("exp_avg", 1<<62)
	if exitcode.CodeOf(err) != exitcode.IO {
		t.Fatalf("%v", err)
	}
	for _, part := range []string{"rank 7", "4611686018427387904 bytes", "rank_00007.exp_avg"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v does not say %s", err, part)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
