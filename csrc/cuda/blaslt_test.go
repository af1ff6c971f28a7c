//go:build cgo && linux

package cuda_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"monotron/csrc/device/devicetest"
)

// cublasLt builds the stand-in with a version; start is what its creation returns.
func cublasLt(t *testing.T, version, start string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "libcublasLt.so")
	out, err := exec.Command("cc", "-shared", "-fPIC", "-O1", "-Wall", "-fvisibility=hidden", "-DVERSION="+version, "-DSTART="+start, "-o", path,
		"standin/library/cublaslt.c").CombinedOutput()
	if err != nil {
		t.Fatalf("compiling the stand-in: %v\n%s", err, out)
	}
	return path
}

// Claim (docs/cuda.md): where the newest cuBLASLt does not start with this driver, the one of the
// CUDA before is taken; a product that a library refuses is made by our own kernels.
func TestOlderCuBLASLt(t *testing.T) {
	emulated(t)
	newer, older := cublasLt(t, "130000", "1"), cublasLt(t, "120901", "0")
	for named, want := range map[string]string{
		newer + ":" + older:            "cuBLASLt 12.9.1",
		"/no/such/library.so:" + older: "cuBLASLt 12.9.1",
		newer:                          "own matrix products",
		"off":                          "own matrix products",
	} {
		t.Setenv("MONOTRON_CUBLASLT", named)
		d := openCopy(t)
		if got := d.Describe(); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", named, got, want)
		}
		if strings.HasSuffix(named, older) {
			devicetest.Smallest(t, d)
		}
		d.Close()
	}
}
