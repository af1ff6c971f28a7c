//go:build cgo

package device

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// compiled makes a shared library of C source.
func compiled(t *testing.T, source string) string {
	t.Helper()
	dir := t.TempDir()
	file, out := filepath.Join(dir, "l.c"), filepath.Join(dir, "l.so")
	if err := os.WriteFile(file, []byte(source), 0o666); err != nil {
		t.Fatal(err)
	}
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	if text, err := exec.Command("gcc", "-shared", "-fPIC", "-I", here, "-o", out, file).CombinedOutput(); err != nil {
		t.Skipf("no gcc here: %v %s", err, text)
	}
	return out
}

const table = `#include "device.h"
static mt_device_api api = {MT_DEVICE_VERSION + %V, sizeof(mt_device_api) + %B, 0, MT_OPS, MT_OPS_SUM + %S};
const mt_device_api *mt_device_api_get(void) { return &api; }
`

// halved is a copy of a file without its second half.
func halved(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "halved.so")
	if err := os.WriteFile(out, raw[:len(raw)/2], 0o777); err != nil {
		t.Fatal(err)
	}
	return out
}

// Claim: whatever is wrong with a kernel library, one line says so; a table of
// another version, size or set of ops names both sides'.
func TestOpenLibraryRefuses(t *testing.T) {
	made := func(version, bytes, sum string) string {
		return compiled(t, strings.NewReplacer("%V", version, "%B", bytes, "%S", sum).Replace(table))
	}
	text := filepath.Join(t.TempDir(), "text.so")
	if err := os.WriteFile(text, []byte("no library"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, path, want string }{
		{"missing", "/no/such/library.so", "/no/such/library.so"},
		{"no library", text, "text.so"},
		{"no table", compiled(t, "int other;"), "the function mt_device_api_get is missing"},
		{"newer", made("1", "0", "0"), fmt.Sprintf("the kernel table has version %d", tableVersion+1)},
		{"larger", made("0", "8", "0"), fmt.Sprintf("this program needs version %d", tableVersion)},
		{"other ops", made("0", "0", "1"), "the kernel table was built from ops"},
		{"empty", made("0", "0", "0"), "the kernel table has no"},
		{"no table behind it", compiled(t, "void *mt_device_api_get(void) { return 0; }"), "has no kernel table"},
		{"cut short", halved(t, made("0", "0", "0")), "truncated"},
	} {
		_, err := OpenLibrary(c.path, 0)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v; want one line with %q", c.name, err, c.want)
		}
	}
}
