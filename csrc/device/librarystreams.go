//go:build cgo

package device

/*
#include "device.h"

static const char *mt_enter(const mt_streams *s, mt_context *c) { return s->enter(c); }
static void *mt_ops(const mt_streams *s, mt_context *c) { return s->ops(c); }
static const char *mt_make(const mt_streams *s, mt_context *c, void **stream) { return s->make(c, stream); }
static void mt_drop_stream(const mt_streams *s, mt_context *c, void *stream) { s->drop_stream(c, stream); }
static const char *mt_mark(const mt_streams *s, mt_context *c, void *stream, void **mark) { return s->mark(c, stream, mark); }
static const char *mt_follow(const mt_streams *s, mt_context *c, void *stream, void *mark) { return s->follow(c, stream, mark); }
static const char *mt_reached(const mt_streams *s, mt_context *c, void *mark, int32_t *yes) { return s->reached(c, mark, yes); }
static void mt_drop_mark(const mt_streams *s, mt_context *c, void *mark) { s->drop_mark(c, mark); }
static const char *mt_stamp(const mt_streams *s, mt_context *c, void *stream, void **mark) { return s->stamp(c, stream, mark); }
static const char *mt_between(const mt_streams *s, mt_context *c, void *from, void *to, double *seconds) { return s->between(c, from, to, seconds); }
static const char *mt_free_memory(const mt_streams *s, mt_context *c, int64_t *bytes) { return s->free_memory(c, bytes); }
*/
import "C"

import (
	"fmt"
	"time"
	"unsafe"
)

// libraryStreams are the streams of a kernel library.
type libraryStreams struct {
	table   *C.mt_streams
	context *C.mt_context
}

// Streams are nil where the library's ops are done when they return.
func (l *library) Streams() Streams {
	if l.api.streams == nil {
		return nil
	}
	return libraryStreams{l.api.streams, l.context}
}

// trouble makes an error from what a call returned, a text that stays.
func trouble(what string, why *C.char) error {
	if why == nil {
		return nil
	}
	return fmt.Errorf("%s: %s", what, C.GoString(why))
}

func (s libraryStreams) Enter() error {
	return trouble("selecting the GPU", C.mt_enter(s.table, s.context))
}
func (s libraryStreams) Ops() Stream { return Stream(C.mt_ops(s.table, s.context)) }

func (s libraryStreams) NewStream() (Stream, error) {
	var out unsafe.Pointer
	err := trouble("creating a stream", C.mt_make(s.table, s.context, &out))
	return Stream(out), err
}

func (s libraryStreams) FreeStream(t Stream) { C.mt_drop_stream(s.table, s.context, unsafe.Pointer(t)) }

func (s libraryStreams) Mark(t Stream) (Mark, error) {
	var out unsafe.Pointer
	err := trouble("recording an event in a stream", C.mt_mark(s.table, s.context, unsafe.Pointer(t), &out))
	return Mark(out), err
}

func (s libraryStreams) Follow(t Stream, m Mark) error {
	return trouble("ordering streams", C.mt_follow(s.table, s.context, unsafe.Pointer(t), unsafe.Pointer(m)))
}

func (s libraryStreams) Reached(m Mark) (bool, error) {
	var yes C.int32_t
	err := trouble("waiting for a stream", C.mt_reached(s.table, s.context, unsafe.Pointer(m), &yes))
	return yes != 0, err
}

func (s libraryStreams) Drop(m Mark) { C.mt_drop_mark(s.table, s.context, unsafe.Pointer(m)) }

func (s libraryStreams) FreeMemory() (int64, error) {
	var bytes C.int64_t
	err := trouble("querying the free memory", C.mt_free_memory(s.table, s.context, &bytes))
	return int64(bytes), err
}

func (s libraryStreams) stamp(t Stream) (Mark, error) {
	var out unsafe.Pointer
	err := trouble("recording a timestamp in a stream", C.mt_stamp(s.table, s.context, unsafe.Pointer(t), &out))
	return Mark(out), err
}

func (s libraryStreams) between(from, to Mark) (time.Duration, error) {
	var seconds C.double
	err := trouble("measuring the time between two events in a stream", C.mt_between(s.table, s.context, unsafe.Pointer(from), unsafe.Pointer(to), &seconds))
	return time.Duration(float64(seconds) * float64(time.Second)), err
}
