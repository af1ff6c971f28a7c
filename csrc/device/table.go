//go:build cgo

package device

/*
#include <stdlib.h>
#include "device.h"

static int64_t mt_tiles(const mt_device_api *api, int op, const void *args, int32_t phase) { return api->op[op].tiles(args, phase); }
static int64_t mt_scratch(const mt_device_api *api, int op, const void *args) { return api->op[op].scratch ? api->op[op].scratch(args) : 0; }
static int32_t mt_run(const mt_device_api *api, mt_context *ctx, int op, const void *args, void *scratch, int32_t phase, int64_t tile) {
  return api->op[op].run(ctx, args, scratch, phase, tile);
}
static int64_t mt_args_bytes(int op) {
#define BYTES(number, name) sizeof(mt_##name##_args),
  static const int64_t bytes[] = {MT_EACH_OP(BYTES)};
#undef BYTES
  return bytes[op];
}
static const char *mt_describe(const mt_device_api *api) { return api->describe(); }
static int32_t mt_instruct(const mt_device_api *api, int32_t dtype, int64_t rounds, mt_instruction *out) {
  return api->instruction ? api->instruction(dtype, rounds, out) : 0;
}
*/
import "C"

import (
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"
)

// hostTable runs a C table whose tiles the pool hands out.
type hostTable struct {
	HostBackend
	api      *C.mt_device_api
	pool     *Pool
	context  []*C.mt_context // one a pool worker; [0] is the caller's
	scratch  unsafe.Pointer  // shared by the tiles of one call
	capacity int64
	stint    stint         // of the caller
	queued   time.Duration // of the last op
}

// OpenHostTable wraps a table whose memory is the host's. api points to an
// mt_device_api.
func OpenHostTable(api unsafe.Pointer, pool *Pool) (Backend, error) {
	t := &hostTable{api: (*C.mt_device_api)(api), pool: pool}
	if err := checkTable(t.api); err != nil {
		return nil, err
	}
	for w := range pool.Threads() {
		c := (*C.mt_context)(C.calloc(1, C.sizeof_mt_context))
		c.worker = C.int32_t(w)
		c.workspace_bytes = t.api.workspace_bytes
		mem, err := HostAlloc(workspaceBytes(t.api))
		if err != nil {
			return nil, fmt.Errorf("memory for the workspace of thread %d cannot be allocated: %w", w, err)
		}
		c.workspace = mem
		t.context = append(t.context, c)
	}
	return t, nil
}

// tableVersion is what both sides of a table must be.
const tableVersion = C.MT_DEVICE_VERSION

const knownBytes = C.sizeof_mt_known

func checkTable(api *C.mt_device_api) error {
	if api.version != tableVersion || api.bytes != C.sizeof_mt_device_api || api.ops != C.MT_OPS || int(api.ops) != int(Ops) {
		return fmt.Errorf("the kernel table has version %d, %d bytes and %d ops, but this program needs version %d, %d bytes and %d ops; build both from the same source",
			api.version, api.bytes, api.ops, tableVersion, C.sizeof_mt_device_api, C.MT_OPS)
	}
	if api.sum != C.MT_OPS_SUM {
		return fmt.Errorf("the kernel table was built from ops with the checksum %08x, but this program's ops have %08x; build both from the same source", api.sum, uint32(C.MT_OPS_SUM))
	}
	for op := range Ops {
		if api.op[op].tiles == nil || api.op[op].run == nil {
			return fmt.Errorf("the kernel table has no %s; rebuild the complete library", op)
		}
	}
	return nil
}

// argsBytes is the size of op's argument struct as C sees it.
func argsBytes(op Op) int64 { return int64(C.mt_args_bytes(C.int(op))) }

// knownTo is what a table's device knows; Known and mt_known are made of one list.
func knownTo(api *C.mt_device_api) *Known { return (*Known)(unsafe.Pointer(&api.known)) }

// Close frees workspaces and scratch, which are as large as a small model.
func (t *hostTable) Close() {
	for _, c := range t.context {
		HostFree(c.workspace, workspaceBytes(t.api))
		C.free(unsafe.Pointer(c))
	}
	if t.capacity > 0 {
		HostFree(t.scratch, t.capacity)
	}
	t.context, t.capacity = nil, 0
}

func workspaceBytes(api *C.mt_device_api) int64 { return max(int64(api.workspace_bytes), 4096) }

func (t *hostTable) Describe() string { return C.GoString(C.mt_describe(t.api)) }

// ask is what an op's tiles work in together.
func (t *hostTable) ask(op Op, args unsafe.Pointer) (scratch int64, err error) {
	if err := knownTo(t.api).Refusal(op, args); err != nil {
		return 0, err
	}
	return int64(C.mt_scratch(t.api, C.int(op), args)), nil
}

func (t *hostTable) Run(op Op, args unsafe.Pointer) error {
	return t.phases(op, args, func(c *C.mt_context, phase C.int32_t, tile C.int64_t) C.int32_t {
		return C.mt_run(t.api, c, C.int(op), args, t.scratch, phase, tile)
	})
}

// warm does op with every tile twice, and returns what the second passes took, evenly shared by
// all threads.
func (t *hostTable) warm(op Op, args unsafe.Pointer) (time.Duration, error) {
	var took atomic.Int64
	err := t.phases(op, args, func(c *C.mt_context, phase C.int32_t, tile C.int64_t) C.int32_t {
		if bad := C.mt_run(t.api, c, C.int(op), args, t.scratch, phase, tile); bad != 0 {
			return bad
		}
		began := time.Now()
		bad := C.mt_run(t.api, c, C.int(op), args, t.scratch, phase, tile)
		took.Add(int64(time.Since(began)))
		return bad
	})
	return time.Duration(took.Load() / int64(t.threads())), err
}

func (t *hostTable) lastQueued() time.Duration { return t.queued }

// phases has the pool do every tile of op, phase by phase; do returns not 0 for a tile that fails.
func (t *hostTable) phases(op Op, args unsafe.Pointer, do func(c *C.mt_context, phase C.int32_t, tile C.int64_t) C.int32_t) error {
	// Memory that the op needs while it runs, shared by its phases.
	scratch, err := t.ask(op, args)
	if err != nil {
		return err
	}
	if err := t.reserve(scratch); err != nil {
		return err
	}
	// A phase reads what the one before has written, so all its tiles end before the next starts.
	t.queued = 0
	for phase := C.int32_t(0); ; phase++ {
		tiles := int64(C.mt_tiles(t.api, C.int(op), args, phase))
		if tiles == 0 {
			return nil
		}
		var failed atomic.Pointer[C.mt_context]
		t.queued += t.pool.run(tiles, func(worker int, tile int64) {
			// Every worker has a context, in which the C code leaves the text of its error.
			c := t.context[worker]
			if do(c, phase, C.int64_t(tile)) != 0 {
				failed.CompareAndSwap(nil, c)
			}
			if worker == 0 {
				t.stint.rest()
			}
		})
		if c := failed.Load(); c != nil {
			return fmt.Errorf("%s: %s", op, C.GoString(&c.error[0]))
		}
	}
}

// reserve makes the shared scratch at least `bytes` large.
func (t *hostTable) reserve(bytes int64) error {
	if bytes <= t.capacity {
		return nil
	}
	if t.capacity > 0 {
		HostFree(t.scratch, t.capacity)
	}
	t.capacity = 0
	mem, err := HostAlloc(bytes)
	if err != nil {
		return fmt.Errorf("%d bytes of scratch memory cannot be allocated: %w", bytes, err)
	}
	t.scratch, t.capacity = mem, bytes
	return nil
}

// instruct does rounds of the processor's own multiply-adds of dtype on each of so many
// threads at least, in pieces that the pool hands out.
func (t *hostTable) instruct(dtype DType, rounds, pieces int64) (name string, operations float64) {
	sums := make([]float64, t.pool.Threads())
	var found atomic.Pointer[C.char]
	t.pool.Run(pieces, func(worker int, _ int64) {
		var out C.mt_instruction
		if C.mt_instruct(t.api, C.int32_t(dtype), C.int64_t(rounds), &out) != 0 {
			sums[worker] += float64(out.operations)
			found.Store((*C.char)(unsafe.Pointer(out.name)))
		}
	})
	for _, n := range sums {
		operations += n
	}
	if p := found.Load(); p != nil {
		name = C.GoString(p)
	}
	return name, operations
}

func (t *hostTable) threads() int { return t.pool.Threads() }
