package device

import "unsafe"

// Stream is where a device's work waits its turn; Mark is a position in one.
type (
	Stream unsafe.Pointer
	Mark   unsafe.Pointer
)

// Streams is what a Backend gives by its method Streams, whose ops run behind the host's
// back: so that communication can run concurrently, in the right order. It may be
// called by any goroutine.
type Streams interface {
	// Enter makes the calling thread use this device's GPU; what follows on the
	// same thread goes there.
	Enter() error
	// Ops is the stream of the device's ops.
	Ops() Stream
	// NewStream makes another, whose work goes before that of the ops where both could continue. FreeStream
	// waits for what is in it.
	NewStream() (Stream, error)
	FreeStream(s Stream)
	// Mark makes a mark after all that is in s now.
	Mark(s Stream) (Mark, error)
	// Follow lets what comes into s later wait for m.
	Follow(s Stream, m Mark) error
	// Reached reports whether all before m is done.
	Reached(m Mark) (bool, error)
	// Drop frees a mark; what follows it already still does.
	Drop(m Mark)
	// FreeMemory is what the GPU has left, in bytes, whoever has the rest.
	FreeMemory() (int64, error)
}

// Streams are the device's, nil where its ops are done when they return.
func (d *Device) Streams() Streams {
	if b, ok := d.backend.(interface{ Streams() Streams }); ok {
		return b.Streams()
	}
	return nil
}
