//go:build cgo && linux

package nccl

import (
	"os"
	"strings"
	"testing"
	"time"
)

// Claim: NVIDIA's own library, which no GPU is needed to open, has every call that we make;
// it says its version and makes ids that differ; and without a GPU it refuses to make a communicator
// by an error with its own words, within the time given, which leaves it usable. What the stand-in
// assumes is so. tests/proofs/cuda/nccl-wheel.sh names the library.
func TestRealLibraryWithoutGPU(t *testing.T) {
	path := os.Getenv("REAL_NCCL")
	if path == "" {
		t.Skip("REAL_NCCL names no library of NVIDIA's")
	}
	t.Setenv("MONOTRON_NCCL", path)
	l, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Forget()
	if v := l.Version(); v < oldest || !strings.Contains(l.Describe(), path) {
		t.Errorf("version %d: %s", v, l.Describe())
	}
	one, err := l.NewID()
	if err != nil {
		t.Skipf("%s: no id without a GPU: %v", l.Describe(), err)
	}
	other, err := l.NewID()
	if err != nil || one == other || one == (ID{}) {
		t.Errorf("two ids: equal %v, empty %v, %v", one == other, one == ID{}, err)
	}
	for range 2 { // the second time as the first
		began := time.Now()
		c, err := l.Init(one, 0, 1, time.Minute, well)
		if err == nil {
			c.Abort()
			t.Skip("there is a GPU: TestEveryCallOnGPU tells more")
		}
		if text := err.Error(); !strings.HasPrefix(text, "NCCL: joining as rank 0 of 1: ") || strings.Contains(text, "took longer") {
			t.Errorf("refused after %v: %v", time.Since(began), err)
		}
		t.Logf("%s: refused: %v", l.Describe(), err)
	}
}
