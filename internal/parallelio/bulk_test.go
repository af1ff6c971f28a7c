package parallelio

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// folders to write in: the disk's, and memory, which cannot be written without the
// page cache.
func folders(t *testing.T) []string {
	list := []string{t.TempDir()}
	if shm, err := os.MkdirTemp("/dev/shm", "bulk-"); err == nil {
		t.Cleanup(func() { os.RemoveAll(shm) })
		list = append(list, shm)
	}
	return list
}

// Claim: a file holds what was written, in pieces of any size, whether it fits a
// chunk, ends with one or near one, and no byte more.
func TestFileHoldsWhatWasWritten(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	data := make([]byte, 3*chunkBytes+5000)
	for i := range data {
		data[i] = byte(i*7 + i>>9)
	}
	for _, dir := range folders(t) {
		for _, size := range []int{0, 1, 4096, chunkBytes - 1, chunkBytes, chunkBytes + 1, 3 * chunkBytes, len(data)} {
			path := filepath.Join(dir, "f")
			file, err := os.Create(path)
			if err != nil {
				t.Fatal(err)
			}
			f := NewFile(file)
			for at := 0; at < size; {
				n := min(size-at, 1+int(r.Int64N(chunkBytes*3/2)))
				if k, err := f.Write(data[at : at+n]); err != nil || k != n {
					t.Fatal(k, err)
				}
				at += n
			}
			if err := f.Sync(); err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, data[:size]) {
				t.Errorf("%s: %d bytes, %d were written, %v", dir, len(got), size, err)
			}
		}
	}
}

// Claim: bytes that are taken without a copy, or with one where they lie at another offset in
// a page, small or large, arrive at their offset among written ones; who gets them
// back may use them at once.
func TestTake(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, dir := range folders(t) {
		path := filepath.Join(dir, "taken")
		file, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		f := NewFile(file)
		var want []byte
		for i := range 24 {
			n := 1 + r.Int64N([]int64{100, 10000, 3 * chunkBytes / 2}[i%3])
			b := NewBuffer(n, int64(len(want))+r.Int64N(2)*64)
			for k := range b.Bytes {
				b.Bytes[k] = byte(k*7 + k>>9 + i)
			}
			want = append(want, b.Bytes...)
			if i%5 == 4 {
				_, err = f.Write(b.Bytes)
			} else {
				err = f.Take(b.Bytes, func() { clear(b.Bytes); b.Free() })
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %d were taken, %v", dir, len(got), len(want), err)
		}
	}
}

// Claim: a disk that takes no more is an error, of a later Write or of Sync, and
// Close ends what is under way.
func TestFullDisk(t *testing.T) {
	for _, size := range []int{100, 4 * chunkBytes} {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Skip(err)
		}
		f := NewFile(full)
		_, err = f.Write(make([]byte, size))
		if err == nil {
			err = f.Sync()
		}
		if err == nil {
			t.Errorf("%d bytes were taken", size)
		}
		_ = f.Close()
	}
}
