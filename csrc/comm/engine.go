//go:build cgo

package comm

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdlib.h>
#include "comm.h"
#include "../device/cutshort.h"

static void *open_library(const char *path) { return dlopen(path, RTLD_NOW | RTLD_LOCAL); }
static const char *why(void) {
  const char *text = dlerror();
  return text ? text : "no reason given";
}
static const mt_comm_api *table(void *library) {
  mt_comm_api_get_fn get = (mt_comm_api_get_fn)dlsym(library, "mt_comm_api_get");
  return get ? get() : NULL;
}
static int32_t open_engine(const mt_comm_api *a, const char *host, mt_engine **e, char *text, int64_t room) {
  mt_error error = {text, room};
  return a->open(host, e, &error);
}
static void close_engine(const mt_comm_api *a, mt_engine *e) { a->close(e); }
static int32_t mesh_new(const mt_comm_api *a, mt_engine *e, int32_t rank, int32_t size, int64_t timeout, mt_mesh **m, char *text, int64_t room) {
  mt_error error = {text, room};
  return a->mesh_new(e, rank, size, timeout, m, &error);
}
static int32_t addresses(const mt_comm_api *a, mt_mesh *m, char *to, char *text, int64_t room) {
  mt_error error = {text, room};
  return a->mesh_addresses(m, to, &error);
}
static int32_t connect_mesh(const mt_comm_api *a, mt_mesh *m, const char *from, char *text, int64_t room) {
  mt_error error = {text, room};
  return a->mesh_connect(m, from, &error);
}
static int32_t one(const mt_comm_api *a, mt_mesh *m, void *data, int64_t bytes, uint64_t slot, int32_t rank, int32_t send, int64_t timeout, char *text, int64_t room) {
  mt_error error = {text, room};
  mt_p2p op = {data, bytes, slot, rank, send};
  return a->batch(m, &op, 1, timeout, &error);
}
static int32_t all_reduce(const mt_comm_api *a, mt_mesh *m, void *data, int64_t count, int32_t dtype, int32_t op, int64_t timeout, char *text, int64_t room) {
  mt_error error = {text, room};
  return a->all_reduce(m, data, count, dtype, op, timeout, &error);
}
static void abort_mesh(const mt_comm_api *a, mt_mesh *m) { a->abort(m); }
static void close_mesh(const mt_comm_api *a, mt_mesh *m) { a->mesh_close(m); }
*/
import "C"

import (
	"bytes"
	"errors"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"monotron/internal/exitcode"
)

// Engine is a library at work at one of this machine's addresses.
type Engine struct {
	api    *C.mt_comm_api
	engine *C.mt_engine
}

// table opens the library, once.
func table() (*C.mt_comm_api, error) {
	path, err := Find()
	if err != nil {
		return nil, err
	}
	opening.Lock()
	defer opening.Unlock()
	if opened == nil {
		opened, err = load(path)
	}
	return opened, err
}

var (
	opening sync.Mutex
	opened  *C.mt_comm_api
)

func load(path string) (*C.mt_comm_api, error) {
	text := C.CString(path)
	defer C.free(unsafe.Pointer(text))
	if why := C.mt_cut_short(text); why != nil {
		return nil, exitcode.Errorf(exitcode.BadData, "%s: %s", path, C.GoString(why))
	}
	library := C.open_library(text)
	if library == nil {
		return nil, exitcode.Errorf(exitcode.NoInput, "%s", C.GoString(C.why()))
	}
	api := C.table(library)
	if api == nil {
		return nil, exitcode.Errorf(exitcode.BadData, "%s is not the Gloo library of monotron: the function mt_comm_api_get is missing; build the library with make gloo", path)
	}
	if api.version != C.MT_COMM_VERSION || api.bytes != C.sizeof_mt_comm_api {
		return nil, exitcode.Errorf(exitcode.BadData, "%s has a function table of version %d and %d bytes, but this program needs version %d and %d bytes; build both from the same source (make build gloo)",
			path, api.version, api.bytes, C.MT_COMM_VERSION, C.sizeof_mt_comm_api)
	}
	return api, nil
}

// Available says whether the library can be opened, and why not.
func Available() error {
	_, err := table()
	return err
}

// Open starts the engine at an address of this machine that peers reach.
func Open(host string) (*Engine, error) {
	api, err := table()
	if err != nil {
		return nil, err
	}
	e := &Engine{api: api}
	text := C.CString(host)
	defer C.free(unsafe.Pointer(text))
	return e, call(func(t *C.char, capacity C.int64_t) C.int32_t { return C.open_engine(api, text, &e.engine, t, capacity) })
}

// call runs a function of the table and takes its error.
func call(f func(text *C.char, capacity C.int64_t) C.int32_t) error {
	var text [512]byte
	if f((*C.char)(unsafe.Pointer(&text[0])), C.int64_t(len(text))) == 0 {
		return nil
	}
	message, _, _ := bytes.Cut(text[:], []byte{0})
	return exitcode.With(exitcode.IO, errors.New("Gloo: "+string(message)))
}

// Close ends it; all meshes must be closed before.
func (e *Engine) Close() { C.close_engine(e.api, e.engine) }

// Mesh is ranks that are connected, each with each. Send and Recv may be called
// from several goroutines; Close waits for them to be over.
type Mesh struct {
	api   *C.mt_comm_api
	mesh  *C.mt_mesh
	rank  int
	size  int
	limit time.Duration // of every call

	inside sync.RWMutex // read: a call is under way
	life   sync.Mutex   // of freed; Abort needs nothing else
	freed  bool

	aborted atomic.Bool
}

// NewMesh is the first step of connecting `size` ranks, this one being `rank`.
// Every wait of the mesh ends after limit.
func (e *Engine) NewMesh(rank, size int, limit time.Duration) (*Mesh, error) {
	m := &Mesh{api: e.api, rank: rank, size: size, limit: limit}
	return m, call(func(t *C.char, capacity C.int64_t) C.int32_t {
		return C.mesh_new(e.api, e.engine, C.int32_t(rank), C.int32_t(size), C.int64_t(limit.Milliseconds()), &m.mesh, t, capacity)
	})
}

// Rank is this rank's number.
func (m *Mesh) Rank() int { return m.rank }

// AddressBytes is the length of one address.
func (m *Mesh) AddressBytes() int { return int(m.api.address_bytes) }

// Addresses are this rank's, one for each other rank, in order.
func (m *Mesh) Addresses() ([]byte, error) {
	all := make([]byte, m.AddressBytes()*(m.size-1))
	return all, call(func(t *C.char, capacity C.int64_t) C.int32_t {
		return C.addresses(m.api, m.mesh, (*C.char)(unsafe.Pointer(&all[0])), t, capacity)
	})
}

// Connect is the second step: addresses has what every other rank, in order, has
// made for this one. All ranks call it.
func (m *Mesh) Connect(addresses []byte) error {
	if len(addresses) != m.AddressBytes()*(m.size-1) {
		return exitcode.Errorf(exitcode.Internal, "Gloo: internal error: %d bytes of addresses were given for the other ranks, which have %d bytes; report this, and include the command line", len(addresses), m.AddressBytes()*(m.size-1))
	}
	return m.enter(func(t *C.char, capacity C.int64_t) C.int32_t {
		return C.connect_mesh(m.api, m.mesh, (*C.char)(unsafe.Pointer(&addresses[0])), t, capacity)
	})
}

// Send and Recv carry data to or from a rank; both ends name one slot. They
// return when the memory is free, or filled.
func (m *Mesh) Send(rank int, slot uint64, data []byte) error { return m.one(rank, slot, data, 1) }
func (m *Mesh) Recv(rank int, slot uint64, data []byte) error { return m.one(rank, slot, data, 0) }

func (m *Mesh) one(rank int, slot uint64, data []byte, send C.int32_t) error {
	if len(data) == 0 {
		return nil
	}
	return m.enter(func(t *C.char, capacity C.int64_t) C.int32_t {
		return C.one(m.api, m.mesh, unsafe.Pointer(&data[0]), C.int64_t(len(data)), C.uint64_t(slot), C.int32_t(rank), send, C.int64_t(m.limit.Milliseconds()), t, capacity)
	})
}

// AllReduce combines count numbers in Gloo's own order; one at a time in a mesh.
func (m *Mesh) AllReduce(data unsafe.Pointer, count int64, dtype, op int) error {
	return m.enter(func(t *C.char, capacity C.int64_t) C.int32_t {
		return C.all_reduce(m.api, m.mesh, data, C.int64_t(count), C.int32_t(dtype), C.int32_t(op), C.int64_t(m.limit.Milliseconds()), t, capacity)
	})
}

// enter makes a call, unless the mesh is closed.
func (m *Mesh) enter(f func(text *C.char, capacity C.int64_t) C.int32_t) error {
	m.inside.RLock()
	defer m.inside.RUnlock()
	if m.freed { // written with inside locked
		return exitcode.Errorf(exitcode.IO, "Gloo: the group was closed")
	}
	err := call(f)
	if err != nil && m.aborted.Load() { // Gloo reports whichever error the abort caused first
		return exitcode.Errorf(exitcode.IO, "Gloo: this rank aborted the group")
	}
	return err
}

// Abort ends calls under way and those to come, from any goroutine.
func (m *Mesh) Abort() {
	m.life.Lock()
	defer m.life.Unlock()
	m.aborted.Store(true)
	if !m.freed {
		C.abort_mesh(m.api, m.mesh)
	}
}

// Close ends the connections once no call is under way; to hurry it, Abort first.
func (m *Mesh) Close() {
	m.inside.Lock()
	defer m.inside.Unlock()
	m.life.Lock()
	defer m.life.Unlock()
	if !m.freed {
		m.freed = true
		C.close_mesh(m.api, m.mesh)
	}
}
