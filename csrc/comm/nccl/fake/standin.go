//go:build cgo && linux

// Package fake is a libnccl.so.2 for tests on machines without GPUs: ranks are
// goroutines of one process, device memory is the host's, streams are threads. It
// moves the bytes and lists what NCCL would have forbidden.
package fake

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

typedef struct {
  void *(*stream)(void);
  void (*stream_free)(void *);
  void *(*mark)(void *);
  void (*order)(void *, void *);
  int (*reached)(void *);
  void (*sync)(void *);
  void *(*gate)(void);
  void (*pass)(void *);
  void (*write)(void *, float *, size_t, int);
  void (*add)(void *, float *, const float *, const float *, size_t);
  const char *(*sins)(void);
  int (*live)(void);
  void (*forget)(void);
  void (*slow)(int);
} standin;

static int standin_open(const char *path, standin *s) {
  void *l = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!l) return -1;
  *(void **)&s->stream = dlsym(l, "standin_stream");
  *(void **)&s->stream_free = dlsym(l, "standin_stream_free");
  *(void **)&s->mark = dlsym(l, "standin_mark");
  *(void **)&s->order = dlsym(l, "standin_order");
  *(void **)&s->reached = dlsym(l, "standin_reached");
  *(void **)&s->sync = dlsym(l, "standin_sync");
  *(void **)&s->gate = dlsym(l, "standin_gate");
  *(void **)&s->pass = dlsym(l, "standin_pass");
  *(void **)&s->write = dlsym(l, "standin_write");
  *(void **)&s->add = dlsym(l, "standin_add");
  *(void **)&s->sins = dlsym(l, "standin_sins");
  *(void **)&s->live = dlsym(l, "standin_live");
  *(void **)&s->forget = dlsym(l, "standin_forget");
  *(void **)&s->slow = dlsym(l, "standin_slow");
  return 0;
}
static void *standin_stream(standin *s) { return s->stream(); }
static void standin_stream_free(standin *s, void *t) { s->stream_free(t); }
static void *standin_mark(standin *s, void *t) { return s->mark(t); }
static void standin_order(standin *s, void *t, void *m) { s->order(t, m); }
static int standin_reached(standin *s, void *m) { return s->reached(m); }
static void standin_sync(standin *s, void *t) { s->sync(t); }
static void *standin_gate(standin *s) { return s->gate(); }
static void standin_pass(standin *s, void *m) { s->pass(m); }
static void standin_write(standin *s, void *t, float *out, size_t n, int v) { s->write(t, out, n, v); }
static void standin_add(standin *s, void *t, float *out, const float *a, const float *b, size_t n) { s->add(t, out, a, b, n); }
static const char *standin_sins(standin *s) { return s->sins(); }
static int standin_live(standin *s) { return s->live(); }
static void standin_forget(standin *s) { s->forget(); }
static void standin_slow(standin *s, int polls) { s->slow(polls); }
*/
import "C"

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"unsafe"

	"monotron/csrc/device"
)

//go:embed library/nccl.c
var source []byte

// Library is the built stand-in.
type Library struct {
	Path string
	api  *C.standin
}

// Build compiles the stand-in into dir.
func Build(dir string) (*Library, error) {
	file, path := filepath.Join(dir, "nccl.c"), filepath.Join(dir, "libnccl.so.2")
	if err := os.WriteFile(file, source, 0o600); err != nil {
		return nil, fmt.Errorf("writing the stand-in's source: %w", err)
	}
	if out, err := exec.Command("cc", "-shared", "-fPIC", "-O1", "-Wall", "-fvisibility=hidden", "-o", path, file, "-lpthread").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compiling the stand-in: %w\n%s", err, out)
	}
	l := &Library{Path: path, api: (*C.standin)(C.calloc(1, C.sizeof_standin))}
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	if C.standin_open(name, l.api) != 0 {
		return nil, fmt.Errorf("%s cannot be opened", path)
	}
	return l, nil
}

// Sins are the forbidden things done so far, a line each.
func (l *Library) Sins() string { return C.GoString(C.standin_sins(l.api)) }

// Live is the number of communicators that were neither destroyed nor aborted.
func (l *Library) Live() int { return int(C.standin_live(l.api)) }

// Forget clears the sins.
func (l *Library) Forget() { C.standin_forget(l.api) }

// Slow makes every call be taken when it was asked about so often, and no sooner; 0: by a
// thread, 20 microseconds after it came.
func (l *Library) Slow(polls int) { C.standin_slow(l.api, C.int(polls)) }

// GPU is a device that computes nothing but sums of two f32 tensors, and has streams, as a Backend.
type GPU struct {
	device.HostBackend
	lib   *Library
	ops   device.Stream
	Waits bool // Follow of the ops' stream waits on the host, so that results can be inspected

	OnNewStream func() // unless nil
}

// GPU opens one.
func (l *Library) GPU() *GPU {
	return &GPU{lib: l, ops: device.Stream(C.standin_stream(l.api)), Waits: true}
}

func (g *GPU) Describe() string { return "stand-in" }
func (g *GPU) Run(op device.Op, args unsafe.Pointer) error {
	if op == device.OpAdd {
		a := (*device.AddArgs)(args)
		C.standin_add(g.lib.api, unsafe.Pointer(g.ops), (*C.float)(a.Out.Data), (*C.float)(a.A.Data), (*C.float)(a.B.Data), C.size_t(a.Out.Len()))
		return nil
	}
	return fmt.Errorf("the stand-in for NCCL cannot compute %s", op)
}
func (g *GPU) Enter() error            { return nil }
func (g *GPU) Streams() device.Streams { return g }
func (g *GPU) Ops() device.Stream      { return g.ops }

func (g *GPU) NewStream() (device.Stream, error) {
	if g.OnNewStream != nil {
		g.OnNewStream()
	}
	return device.Stream(C.standin_stream(g.lib.api)), nil
}
func (g *GPU) FreeStream(s device.Stream) { C.standin_stream_free(g.lib.api, unsafe.Pointer(s)) }

func (g *GPU) Mark(s device.Stream) (device.Mark, error) {
	return device.Mark(C.standin_mark(g.lib.api, unsafe.Pointer(s))), nil
}

func (g *GPU) Follow(s device.Stream, m device.Mark) error {
	C.standin_order(g.lib.api, unsafe.Pointer(s), unsafe.Pointer(m))
	if g.Waits && s == g.ops {
		return g.Sync()
	}
	return nil
}

func (g *GPU) Reached(m device.Mark) (bool, error) {
	return C.standin_reached(g.lib.api, unsafe.Pointer(m)) != 0, nil
}

// Drop leaks the mark: a stream may still follow it, and a test is short.
func (g *GPU) Drop(device.Mark) {}

// Memory is what a communicator takes of it, here.
const Memory = 4 << 20

// FreeMemory is less by each communicator.
func (g *GPU) FreeMemory() (int64, error) { return 1<<40 - int64(g.lib.Live())*Memory, nil }

// Sync waits for the ops' stream.
func (g *GPU) Sync() error {
	C.standin_sync(g.lib.api, unsafe.Pointer(g.ops))
	return nil
}

// Hold stops the ops' stream until the result is called.
func (g *GPU) Hold() (release func()) {
	gate := C.standin_gate(g.lib.api)
	C.standin_order(g.lib.api, unsafe.Pointer(g.ops), gate)
	return func() { C.standin_pass(g.lib.api, gate) }
}

// Fill is a kernel that sets every element of t, f32, to value.
func (g *GPU) Fill(t device.Tensor, value int) {
	C.standin_write(g.lib.api, unsafe.Pointer(g.ops), (*C.float)(t.Data), C.size_t(t.Len()), C.int(value))
}
