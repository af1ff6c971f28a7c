//go:build cgo && linux

// Package fake is a libcudnn.so.9 for tests on machines without GPUs: it runs graphs of
// operations on the CPU, in the emulated GPU's streams, and refuses what cuDNN forbids.
package fake

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdlib.h>

static void *standin_open(const char *path) { return dlopen(path, RTLD_NOW | RTLD_LOCAL); }
static int standin_number(void *l, const char *name) { int (*f)(void) = (int (*)(void))dlsym(l, name); return f(); }
static const char *standin_text(void *l, const char *name) { const char *(*f)(void) = (const char *(*)(void))dlsym(l, name); return f(); }
*/
import "C"

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"
)

//go:embed library/cudnn.cpp
var source []byte

// Library is the built stand-in.
type Library struct {
	Path   string
	handle unsafe.Pointer
}

// Build compiles the stand-in into dir.
func Build(dir string) (*Library, error) {
	file, path := filepath.Join(dir, "cudnn.cpp"), filepath.Join(dir, "libcudnn.so.9")
	if err := os.WriteFile(file, source, 0o600); err != nil {
		return nil, fmt.Errorf("writing the stand-in's source: %w", err)
	}
	if out, err := exec.Command("g++", "-std=c++17", "-shared", "-fPIC", "-O2", "-Wall", "-fvisibility=hidden", "-o", path, file).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compiling the stand-in: %w\n%s", err, out)
	}
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	l := &Library{Path: path, handle: C.standin_open(name)}
	if l.handle == nil {
		return nil, fmt.Errorf("%s cannot be opened: %s", path, C.GoString(C.dlerror()))
	}
	return l, nil
}

// Emulated reports whether the kernel library that is named (cuda.LibraryVariable) is the
// emulated one.
func Emulated() bool { return strings.Contains(os.Getenv("MONOTRON_CUDA_LIBRARY"), "cudaemu") }

// Use builds the stand-in for a test that is for the emulated library alone, and makes
// that find it.
func Use(t testing.TB) *Library {
	t.Helper()
	if !Emulated() {
		t.Skip("MONOTRON_CUDA_LIBRARY does not name the emulated library; make test-emu sets it")
	}
	l, err := Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("MONOTRON_CUDNN", l.Path)
	return l
}

func (l *Library) number(name string) int {
	s := C.CString(name)
	defer C.free(unsafe.Pointer(s))
	return int(C.standin_number(l.handle, s))
}

// Runs is how many graphs were run so far.
func (l *Library) Runs() int { return l.number("standin_runs") }

// Alive is the number of descriptors and handles that were not destroyed.
func (l *Library) Alive() int { return l.number("standin_alive") }

// Sins are the forbidden things that were done without being refused, a line each.
func (l *Library) Sins() string {
	s := C.CString("standin_sins")
	defer C.free(unsafe.Pointer(s))
	return C.GoString(C.standin_text(l.handle, s))
}
