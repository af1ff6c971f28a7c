//go:build cgo && linux

package fake

import (
	_ "embed"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

//go:embed library/cublaslt.c
var products []byte

// CuBLASLt builds a libcublasLt, whose creation returns start (0: it starts). It refuses every
// product; with sums it makes most, in an order that their operands' alignment decides.
func CuBLASLt(t testing.TB, version, start string, sums bool) (path string) {
	t.Helper()
	dir := t.TempDir()
	file, path := filepath.Join(dir, "cublaslt.c"), filepath.Join(dir, "libcublasLt.so")
	if err := os.WriteFile(file, products, 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"-shared", "-fPIC", "-O2", "-Wall", "-ffp-contract=off", "-fvisibility=hidden", "-DVERSION=" + version, "-DSTART=" + start}
	if sums {
		args = append(args, "-DSUMS")
	}
	if out, err := exec.Command("gcc", append(args, "-o", path, file)...).CombinedOutput(); err != nil {
		t.Fatalf("compiling the stand-in: %v\n%s", err, out)
	}
	return path
}
