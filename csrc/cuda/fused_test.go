//go:build cgo && linux

package cuda_test

import (
	"fmt"
	"math"
	"os"
	"strings"
	"sync"
	"testing"

	"monotron/csrc/cuda/fake"
	"monotron/csrc/device"
	"monotron/csrc/device/devicetest"
	"monotron/internal/drawn"
)

// Claim: the graphs that cuDNN is given are attention, forward and backward: what it
// computes agrees with the oracle. On a GPU by cuDNN where it is found; emulated by a
// stand-in that runs any graph, knows nothing of attention, and lists what is forbidden.
func TestFusedAttention(t *testing.T) {
	onCPU := fake.Emulated()
	var lib *fake.Library
	if onCPU {
		lib = standIn(t)
	}
	d := open(t)
	taken := devicetest.Fused(t, d)
	d.Close()
	t.Logf("%d cases by %s", taken, map[bool]string{true: "the stand-in", false: "cuDNN"}[onCPU])
	if !onCPU {
		if taken == 0 {
			t.Skip("cuDNN took no case; the cases say why")
		}
		return
	}
	if taken < 30/int(drawn.Share()) || lib.Runs() != taken || lib.Sins() != "" || lib.Alive() != 0 {
		t.Errorf("%d cases taken, %d graphs run, %d descriptors left, sins: %q", taken, lib.Runs(), lib.Alive(), lib.Sins())
	}
}

// built is the stand-in for cuDNN, compiled once.
var (
	standInFolder string
	built         = sync.OnceValues(func() (*fake.Library, error) { return fake.Build(standInFolder) })
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "standin-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	standInFolder = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// standIn makes the kernel library take the stand-in.
func standIn(t *testing.T) *fake.Library {
	t.Helper()
	lib, err := built()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("MONOTRON_CUDNN", lib.Path)
	return lib
}

// Claim: what cuDNN cannot do, or would do with other numbers, is refused by name, and
// nothing changes; without the library that is the reason.
func TestFusedAttentionRefuses(t *testing.T) {
	emulated(t)
	standIn(t)
	d := open(t)
	defer d.Close()
	like := func(dtype device.DType, s, channels int64) device.AttentionBackwardArgs {
		a := device.AttentionForwardArgs{Batch: 1, Window: -1, Scale: 1}
		scope := d.Arena.Scope(device.Workspace)
		a.Q, a.K, a.V, a.O = scope.Alloc(dtype, s, 1, 1, channels), scope.Alloc(dtype, s, 1, 1, channels), scope.Alloc(dtype, s, 1, 1, channels), scope.Alloc(dtype, s, 1, 1, channels)
		a.LSE = scope.Alloc(device.F32, 1, 1, s)
		return device.AttentionBackwardArgs{Forward: a}
	}
	refused := func(want string, a device.AttentionBackwardArgs) {
		t.Helper()
		if err := d.FuseAttention(a, math.MaxInt64); err == nil || !strings.Contains(err.Error(), want) || d.FusedWorkspace() != 0 {
			t.Errorf("want %q: %v", want, err)
		}
	}
	refused("f32", like(device.F32, 8, 16))
	refused("multiple of 8", like(device.BF16, 8, 20))
	refused("at most 128", like(device.F16, 8, 136))
	refused("a key/value cache", like(device.BF16, 1, 16))
	window := like(device.BF16, 8, 16)
	window.Forward.Window = 3
	refused("sliding window", window)
	drop := like(device.BF16, 8, 16)
	drop.Forward.Drop.Rate = 0.1
	refused("dropout", drop)
	documents := like(device.BF16, 8, 16)
	documents.Forward.DocStart = d.Arena.Zeroed(device.Workspace, device.I32, 1, 8)
	refused("documents", documents)
	slopes := like(device.BF16, 8, 16)
	slopes.Forward.Slopes = d.Arena.Zeroed(device.Workspace, device.F32, 1)
	refused("ALiBi", slopes)
	capped := like(device.BF16, 8, 16)
	capped.Forward.Rule, capped.Forward.Cap = device.CappedScores, 30
	refused("softcapped scores", capped)
	chunked := like(device.BF16, 8, 16)
	chunked.Forward.Chunk = 4
	refused("chunked attention", chunked)
	parts := like(device.BF16, 8, 16)
	parts.Forward.O = d.Arena.Zeroed(device.Workspace, device.F32, 8, 1, 1, 16)
	refused("partial results in f32", parts)

	for value, want := range map[string]string{"off": "MONOTRON_CUDNN=off", "/no/such/libcudnn.so.9": "does not name a library"} {
		t.Setenv("MONOTRON_CUDNN", value)
		refused(want, like(device.BF16, 8, 16))
	}
}
