//go:build cgo

package device

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdlib.h>
#include "device.h"
#include "cutshort.h"

typedef const mt_device_api *(*mt_get)(void);
static const mt_device_api *mt_call_get(void *f) { return ((mt_get)f)(); }
static int32_t mt_open(const mt_device_api *api, mt_context *c, int32_t ordinal) { return api->open(c, ordinal); }
static int32_t mt_alloc(const mt_device_api *api, mt_context *c, int64_t bytes, void **out) { return api->alloc(c, bytes, out); }
static int32_t mt_release(const mt_device_api *api, mt_context *c, void *p) { return api->release(c, p); }
static int32_t mt_copy(const mt_device_api *api, mt_context *c, void *dst, const void *src, int64_t bytes, int32_t to_host) {
  return api->copy(c, dst, src, bytes, to_host);
}
static int32_t mt_sync(const mt_device_api *api, mt_context *c) { return api->sync(c); }
static void mt_close(const mt_device_api *api, mt_context *c) { api->close(c); }
static const char *mt_about(const mt_device_api *api) { return api->describe(); }
static const char *mt_refused(const mt_device_api *api, mt_context *c) { return api->refused ? api->refused(c) : NULL; }
static void mt_keep_order(const mt_device_api *api) {
  if (api->invariant) api->invariant();
}
static const char *mt_products(const mt_device_api *api, mt_context *c) { return api->products(c); }
static int64_t mt_room(const mt_device_api *api, int op, const void *args) { return api->op[op].scratch ? api->op[op].scratch(args) : 0; }
static int32_t mt_fuse_attention(const mt_device_api *api, mt_context *c, const void *like, int64_t *bytes) {
  return api->fuse_attention(c, (const mt_attention_backward_args *)like, bytes);
}
static int32_t mt_enqueue(const mt_device_api *api, mt_context *c, int op, const void *args, void *scratch) {
  return api->op[op].run(c, args, scratch, 0, 0);
}
*/
import "C"

import (
	"errors"
	"fmt"
	"unsafe"
)

// library runs a table whose memory is a device's own and whose ops only
// enqueue. The file stays loaded as long as the process lives.
type library struct {
	api      *C.mt_device_api
	context  *C.mt_context
	scratch  unsafe.Pointer // shared by all ops: one stream runs them in order
	capacity int64
	graphs   int              // there are
	trail    *Trail           // nil: ops are done when their calls return
	taking   bool             // what is enqueued is taken down for a graph
	kept     []unsafe.Pointer // former scratch that graphs work in
}

// OpenLibrary loads the kernel library at path and opens GPU `ordinal`. The
// error says what is missing, in one line.
func OpenLibrary(path string, ordinal int) (Backend, error) {
	api, err := loadTable(path)
	if err != nil {
		return nil, err
	}
	l := &library{api: api, context: (*C.mt_context)(C.calloc(1, C.sizeof_mt_context))}
	if C.mt_open(api, l.context, C.int32_t(ordinal)) != 0 {
		defer C.free(unsafe.Pointer(l.context))
		return nil, l.failure()
	}
	if s, ok := l.Streams().(stamper); ok {
		l.trail = newTrail(s)
	}
	return l, nil
}

// Trail is how far the library's ops have come.
func (l *library) Trail() *Trail { return l.trail }

// loadTable finds the one symbol a library exports and checks that both sides
// were built from one source.
func loadTable(path string) (*C.mt_device_api, error) {
	name, symbol := C.CString(path), C.CString("mt_device_api_get")
	defer C.free(unsafe.Pointer(name))
	defer C.free(unsafe.Pointer(symbol))
	if why := C.mt_cut_short(name); why != nil {
		return nil, fmt.Errorf("%s: %s", path, C.GoString(why))
	}
	handle := C.dlopen(name, C.RTLD_NOW|C.RTLD_LOCAL)
	if handle == nil {
		return nil, errors.New(C.GoString(C.dlerror()))
	}
	get := C.dlsym(handle, symbol)
	if get == nil {
		return nil, fmt.Errorf("%s is not a kernel library: the function mt_device_api_get is missing; build the library from the source of this program", path)
	}
	api := C.mt_call_get(get)
	if api == nil {
		return nil, fmt.Errorf("%s has no kernel table; build the library from the source of this program", path)
	}
	if err := checkTable(api); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return api, nil
}

func (l *library) failure() error { return errors.New(C.GoString(&l.context.error[0])) }

func (l *library) status(code C.int32_t) error {
	if code != 0 {
		return l.failure()
	}
	return nil
}

// Products are by whatever the kernel library has found for them.
func (l *library) Products() string {
	if l.api.products == nil {
		return ""
	}
	return C.GoString(C.mt_products(l.api, l.context))
}

// Refused are the products that it has not made.
func (l *library) Refused() string {
	if text := C.mt_refused(l.api, l.context); text != nil {
		return C.GoString(text)
	}
	return ""
}

// common has all libraries of the process compute every result in one order, by no other library.
func (l *library) common() { C.mt_keep_order(l.api) }

func (l *library) Describe() string { return C.GoString(C.mt_about(l.api)) }

func (l *library) Alloc(bytes int64) (unsafe.Pointer, error) {
	defer l.trail.call()()
	var p unsafe.Pointer
	err := l.status(C.mt_alloc(l.api, l.context, C.int64_t(bytes), &p))
	if err == nil {
		return p, nil
	}
	if failed := l.Sync(); failed != nil {
		return nil, &broken{failed}
	}
	return nil, err
}

// Free waits first: ops enqueued before may still use the memory.
func (l *library) Free(p unsafe.Pointer, _ int64) {
	defer l.trail.call()()
	C.mt_sync(l.api, l.context)
	C.mt_release(l.api, l.context, p)
}

func (l *library) Write(dst unsafe.Pointer, src []byte) error {
	if len(src) == 0 {
		return nil
	}
	defer l.trail.call()()
	return l.status(C.mt_copy(l.api, l.context, dst, unsafe.Pointer(&src[0]), C.int64_t(len(src)), 0))
}

func (l *library) Read(dst []byte, src unsafe.Pointer) error {
	if len(dst) == 0 {
		return nil
	}
	defer l.trail.call()()
	return l.status(C.mt_copy(l.api, l.context, unsafe.Pointer(&dst[0]), src, C.int64_t(len(dst)), 1))
}

// Close waits for what was enqueued.
func (l *library) Close() {
	for _, p := range append(l.kept, l.scratch) {
		if p != nil {
			l.Free(p, 0)
		}
	}
	l.trail.close()
	C.mt_close(l.api, l.context)
	C.free(unsafe.Pointer(l.context))
	l.scratch, l.capacity, l.context, l.kept = nil, 0, nil, nil
}

// OnHost is true of emulated kernels.
func (l *library) OnHost() bool { return l.api.host_memory != 0 }

func (l *library) Sync() error {
	defer l.trail.call()()
	return l.status(C.mt_sync(l.api, l.context))
}

// ask is what an op works in.
func (l *library) ask(op Op, args unsafe.Pointer) (scratch int64, err error) {
	if err := knownTo(l.api).Refusal(op, args); err != nil {
		return 0, err
	}
	return int64(C.mt_room(l.api, C.int(op), args)), nil
}

func (l *library) Run(op Op, args unsafe.Pointer) error {
	bytes, err := l.ask(op, args)
	if err != nil {
		return err
	}
	if bytes > l.capacity {
		if err := l.reserve(bytes); err != nil {
			return &shortage{op, bytes, err}
		}
	}
	defer l.trail.call()()
	if l.trail != nil && !l.taking {
		l.trail.passing()
	}
	return l.status(C.mt_enqueue(l.api, l.context, C.int(op), args, l.scratch))
}

// reserve makes the scratch at least `bytes` large; it grows in steps where there is
// memory for them, so that a training step soon needs no more.
func (l *library) reserve(bytes int64) error {
	switch {
	case l.scratch != nil && l.graphs > 0:
		l.kept = append(l.kept, l.scratch)
	case l.scratch != nil:
		l.Free(l.scratch, l.capacity)
	}
	l.scratch, l.capacity = nil, 0
	step := max(bytes+bytes/4, 16<<20)
	p, err := l.Alloc(step)
	if err != nil {
		step = bytes
		p, err = l.Alloc(step)
	}
	if err != nil {
		return err
	}
	l.scratch, l.capacity = p, step
	return nil
}

func (l *library) fuseAttention(like *AttentionBackwardArgs) (int64, error) {
	if l.api.fuse_attention == nil {
		return 0, errors.New("this kernel library does not support cuDNN's attention")
	}
	var bytes C.int64_t
	err := l.status(C.mt_fuse_attention(l.api, l.context, unsafe.Pointer(like), &bytes))
	return int64(bytes), err
}

func (l *library) ownAttention() {
	if l.api.fuse_attention != nil {
		C.mt_fuse_attention(l.api, l.context, nil, nil)
	}
}

func (l *library) setWorkspace(t Tensor) {
	l.context.workspace, l.context.workspace_bytes = t.Data, 0
	if t.Given() {
		l.context.workspace_bytes = C.int64_t(t.Bytes())
	}
}
