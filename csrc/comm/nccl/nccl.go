//go:build cgo && linux

// Package nccl opens NVIDIA's NCCL at run time and gives its calls Go's types. It
// keeps no state of its own: deadlines, order and abortion are package comm's.
package nccl

/*
#cgo CFLAGS: -O2 -g0 -std=gnu11 -Wall
#cgo LDFLAGS: -ldl
#include <stdlib.h>
#include "nccl.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
	"unsafe"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
)

// oldest is the first NCCL whose communicators need not block.
const oldest = 21400

// Library is an opened libnccl.
type Library struct {
	api  C.mt_nccl
	path string
	log  *warnings

	sleep func(time.Duration) // of a call that is not taken soon
}

// Open finds NCCL: at MONOTRON_NCCL where that is set, else where the linker
// knows libnccl.so.2, else next to a Python's torch.
func Open() (*Library, error) {
	l, err := find()
	if err != nil {
		return nil, err
	}
	if v := l.Version(); v < oldest {
		return nil, exitcode.Errorf(exitcode.Usage, "NCCL cannot be used: %s is version %s; 2.14 or newer is needed", l.path, Spell(v))
	}
	l.log, err = newWarnings() // NCCL reads its settings at its first message
	return l, err
}

// find opens the first library that loads. If none does, the error is that of the first path,
// usually the linker's for libnccl.so.2.
func find() (*Library, error) {
	paths, cure := []string{os.Getenv("MONOTRON_NCCL")}, "MONOTRON_NCCL"
	if paths[0] == "" {
		paths = append([]string{"libnccl.so.2"}, nextToTorch(os.Getenv)...)
		cure = "install NCCL 2.14 or newer (pip install nvidia-nccl-cu12), add its folder to LD_LIBRARY_PATH, or set MONOTRON_NCCL to the file"
	}
	var first error
	for _, path := range paths {
		l, err := open(path)
		if err == nil {
			return l, nil
		}
		if first == nil {
			first = err
		}
	}
	return nil, exitcode.Errorf(exitcode.Usage, "NCCL cannot be used: %w (%s)", first, cure)
}

func open(path string) (*Library, error) {
	l := &Library{path: path, sleep: time.Sleep}
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	var text [512]C.char
	if C.mt_nccl_open(name, &l.api, &text[0], C.size_t(len(text))) != 0 {
		return nil, errors.New(C.GoString(&text[0]))
	}
	return l, nil
}

// nextToTorch are the files that pip has installed into the Python in use, outside the linker's
// search path; csrc/cuda/torchlibs.h searches the same folders for NVIDIA's other libraries.
func nextToTorch(getenv func(string) string) (paths []string) {
	for _, root := range []string{getenv("VIRTUAL_ENV"), getenv("CONDA_PREFIX"), "/usr/local", "/usr"} {
		if root == "" {
			continue
		}
		found, err := filepath.Glob(filepath.Join(root, "lib/python3*/*-packages/nvidia/nccl/lib/libnccl.so.2"))
		if err == nil { // a root with a bracket in it is not a valid pattern
			paths = append(paths, found...)
		}
	}
	return paths
}

// Version is the library's, as in 22809 for 2.28.9; 0: it does not say.
func (l *Library) Version() int {
	var v C.int
	if C.mt_nccl_version(&l.api, &v) != C.MT_NCCL_SUCCESS {
		return 0
	}
	return int(v)
}

// Describe names the library for the log.
func (l *Library) Describe() string { return "NCCL " + Spell(l.Version()) + " (" + l.path + ")" }

// Spell writes a version as NCCL's releases are called.
func Spell(v int) string { return fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100) }

// ID names a communicator that is being made.
type ID [128]byte

// NewID makes one; the first rank's is given to the others.
func (l *Library) NewID() (id ID, err error) {
	return id, l.check(nil, C.mt_nccl_unique(&l.api, (*C.mt_nccl_id)(unsafe.Pointer(&id))), "creating a unique id")
}

// Comm is a communicator. Its calls enqueue on a stream and return when they were
// taken; the thread must have chosen the rank's GPU before.
type Comm struct {
	lib   *Library
	limit time.Duration
	lost  func() error

	mu   sync.Mutex
	made *C.mt_nccl_comm // the handle, in C's memory: NCCL 2.16 keeps its address while it joins
	over bool            // aborted or closed: the handle is gone
}

// errOver is what a call finds after an Abort; whoever aborted knows more.
var errOver = exitcode.Errorf(exitcode.Internal, "NCCL: the communicator was aborted")

// Init joins rank of `ranks` to a communicator, within limit, which also bounds
// how long any later call may take to be taken. What lost returns ends the wait
// for peers that will not come; nil: continue.
func (l *Library) Init(id ID, rank, ranks int, limit time.Duration, lost func() error) (*Comm, error) {
	c := &Comm{lib: l, limit: limit, lost: lost, made: (*C.mt_nccl_comm)(C.calloc(1, C.sizeof_mt_nccl_comm))}
	err := c.call(fmt.Sprintf("joining as rank %d of %d", rank, ranks), func() C.int {
		return C.mt_nccl_init(&l.api, c.made, C.int(ranks), (*C.mt_nccl_id)(unsafe.Pointer(&id)), C.int(rank))
	})
	if err != nil {
		c.Abort()
		return nil, err
	}
	return c, nil
}

// call makes a call that does not block, and waits until it has been taken: mostly
// inside the call (nccl.c), for the shortest sleep is longer. Abort may come between.
func (c *Comm) call(what string, f func() C.int) error {
	r, err := c.locked(f)
	pause := 100 * time.Microsecond
	for end := time.Now().Add(c.limit); err == nil && r == C.MT_NCCL_IN_PROGRESS; {
		if err := c.lost(); err != nil {
			return err
		}
		if time.Now().After(end) {
			return exitcode.Errorf(exitcode.Internal, "NCCL: %s took longer than %v: a peer is missing, or the network to a peer does not work%s", what, c.limit, Meeting())
		}
		c.lib.sleep(pause)
		pause = min(2*pause, time.Millisecond)
		r, err = c.locked(c.state)
	}
	if err != nil {
		return err
	}
	return c.lib.check(c, r, what)
}

// Meeting is by which interface NCCL meets, as errors of its network end; "": by whichever it
// has found.
func Meeting() string {
	if name := os.Getenv("NCCL_SOCKET_IFNAME"); name != "" {
		return fmt.Sprintf(" (NCCL_SOCKET_IFNAME is %s)", name)
	}
	return ""
}

func (c *Comm) locked(f func() C.int) (C.int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return 0, errOver
	}
	return f(), nil
}

// state is the result of the last call that was in progress; the caller holds the lock.
func (c *Comm) state() C.int {
	var r C.int
	if asked := C.mt_nccl_async(&c.lib.api, *c.made, &r); asked != C.MT_NCCL_SUCCESS {
		return asked
	}
	return r
}

// check gives a result its text, with NCCL's own last words.
func (l *Library) check(c *Comm, r C.int, what string) error {
	if r == C.MT_NCCL_SUCCESS {
		return nil
	}
	var handle C.mt_nccl_comm
	if c != nil {
		c.mu.Lock()
		defer c.mu.Unlock() // an Abort would take the handle away
		if !c.over {
			handle = *c.made
		}
	}
	text := C.GoString(C.mt_nccl_error(&l.api, r))
	if last := C.GoString(C.mt_nccl_last(&l.api, handle)); last != "" {
		text += ": " + last
	}
	if more := l.log.fresh(); more != "" {
		text += "\n" + more
	}
	return exitcode.Errorf(exitcode.Internal, "NCCL: %s: %s", what, text)
}

// Err is a trouble that came up since, nil: none is known.
func (c *Comm) Err() error {
	r, err := c.locked(c.state)
	if err != nil || r == C.MT_NCCL_IN_PROGRESS {
		return err
	}
	return c.lib.check(c, r, "working")
}

// Abort gives up all that is under way; any thread may call it, more than once. It waits
// for the other ranks of the host to give it up, without the lock: calls fail meanwhile.
func (c *Comm) Abort() {
	if h := c.retire(); h != nil {
		C.mt_nccl_abort(&c.lib.api, h)
	}
}

// Close ends a communicator whose work is done. Nothing may follow. It waits for the other
// ranks of the host: who closes several takes the order of everybody.
func (c *Comm) Close() error {
	if err := c.call("ending", func() C.int { return C.mt_nccl_finalize(&c.lib.api, *c.made) }); err != nil {
		c.Abort()
		return err
	}
	h := c.retire()
	if h == nil {
		return errOver
	}
	return c.lib.check(nil, C.mt_nccl_destroy(&c.lib.api, h), "ending")
}

// retire takes the handle away from all calls to come; nil: it is gone.
func (c *Comm) retire() C.mt_nccl_comm {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return nil
	}
	c.over = true
	defer C.free(unsafe.Pointer(c.made))
	return *c.made
}

// Op is how values are combined, by NCCL's numbers.
type Op int

const (
	Sum Op = 0
	Max Op = 2
)

// types are NCCL's numbers of the dtypes that it reduces.
var types = map[device.DType]C.int{device.F32: 7, device.F64: 8, device.BF16: 9, device.F16: 6, device.I32: 2, device.I64: 4}

// typed is call with NCCL's number of a dtype that is combined.
func (c *Comm) typed(what string, dtype device.DType, f func(number C.int) C.int) error {
	number, known := types[dtype]
	if !known {
		return exitcode.Errorf(exitcode.Internal, "NCCL: %s of %s is not supported; NCCL cannot combine values of this type", what, dtype)
	}
	return c.call(what, func() C.int { return f(number) })
}

func (c *Comm) AllReduce(t device.Tensor, op Op, stream device.Stream) error {
	return c.typed("all_reduce", t.DType, func(number C.int) C.int {
		return C.mt_nccl_all_reduce(&c.lib.api, t.Data, C.size_t(t.Len()), number, C.int(op), *c.made, C.mt_nccl_stream(stream))
	})
}

func (c *Comm) Reduce(t device.Tensor, op Op, root int, stream device.Stream) error {
	return c.typed("reduce", t.DType, func(number C.int) C.int {
		return C.mt_nccl_reduce(&c.lib.api, t.Data, C.size_t(t.Len()), number, C.int(op), C.int(root), *c.made, C.mt_nccl_stream(stream))
	})
}

func (c *Comm) Broadcast(t device.Tensor, root int, stream device.Stream) error {
	return c.call("broadcast", func() C.int {
		return C.mt_nccl_broadcast(&c.lib.api, t.Data, C.size_t(t.Bytes()), C.int(root), *c.made, C.mt_nccl_stream(stream))
	})
}

func (c *Comm) AllGather(out, in device.Tensor, stream device.Stream) error {
	return c.call("all_gather", func() C.int {
		return C.mt_nccl_all_gather(&c.lib.api, in.Data, out.Data, C.size_t(in.Bytes()), *c.made, C.mt_nccl_stream(stream))
	})
}

func (c *Comm) ReduceScatter(out, in device.Tensor, op Op, stream device.Stream) error {
	return c.typed("reduce_scatter", out.DType, func(number C.int) C.int {
		return C.mt_nccl_reduce_scatter(&c.lib.api, in.Data, out.Data, C.size_t(out.Len()), number, C.int(op), *c.made, C.mt_nccl_stream(stream))
	})
}

// Transfer is one half of a message.
type Transfer struct {
	Peer int
	Send bool
	T    device.Tensor
}

// Batch makes all transfers as one group.
func (c *Comm) Batch(transfers []Transfer, stream device.Stream) error {
	if len(transfers) == 0 {
		return nil
	}
	buffer := C.malloc(C.size_t(len(transfers)) * C.sizeof_mt_nccl_p2p) // pointers to memory that is not Go's
	defer C.free(buffer)
	ops := unsafe.Slice((*C.mt_nccl_p2p)(buffer), len(transfers))
	for i, t := range transfers {
		ops[i] = C.mt_nccl_p2p{data: t.T.Data, bytes: C.size_t(t.T.Bytes()), peer: C.int(t.Peer)}
		if t.Send {
			ops[i].send = 1
		}
	}
	return c.call("send and receive", func() C.int {
		return C.mt_nccl_batch(&c.lib.api, &ops[0], C.int(len(ops)), *c.made, C.mt_nccl_stream(stream))
	})
}
