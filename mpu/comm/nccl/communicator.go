//go:build cgo && linux

package nccl

import (
	"fmt"
	"time"

	"monotron/csrc/comm/nccl"
	"monotron/csrc/device"
	"monotron/internal/exitcode"
)

// communicator is NCCL's of some ranks, with a stream of its own. Groups of the same ranks
// share it, for each costs memory of the GPU and threads of the host; all ranks call their
// collectives in one order, whatever the group.
type communicator struct {
	members []int
	nccl    *nccl.Comm
	stream  device.Stream

	open []*enqueued // not known to be done, oldest first; of World.mu
}

// checkOne drops what is done. A call that has taken too long, or a communicator in trouble,
// is an error.
func (w *World) checkOne(c *communicator) error {
	// Calls end in the order in which they began: stop at the first that has not.
	for {
		first := w.oldest(c)
		if first == nil {
			break
		}
		if begun, err := w.comeTo(first); err != nil {
			return err
		} else if !begun {
			break
		}
		reached, err := w.streams.Reached(first.mark)
		if err != nil {
			return err
		}
		if !reached {
			break
		}
		w.finish(c)
	}
	// NCCL's own errors come asynchronously; a call that takes too long is an error here.
	if err := c.nccl.Err(); err != nil && w.Err() == nil {
		return fmt.Errorf("ranks %v: %w", c.members, err)
	}
	if first := w.oldest(c); first != nil && time.Since(first.call.Posted) > w.limit {
		return exitcode.Errorf(exitcode.Internal, "%s has not completed after %v: a rank did not call the operation, or the network of the GPUs hangs%s",
			first.call, time.Since(first.call.Posted).Round(time.Second), nccl.Meeting())
	}
	return nil
}

// oldest is the call that has been under way for longest; nil: none is. Nobody but the
// caller drops its mark.
func (w *World) oldest(c *communicator) *enqueued {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(c.open) == 0 {
		return nil
	}
	return c.open[0]
}

// comeTo finds out whether the GPU has come to the oldest call of a communicator.
func (w *World) comeTo(e *enqueued) (begun bool, err error) {
	if e.begun {
		return true, nil
	}
	reached, err := w.streams.Reached(e.ready)
	if err != nil || !reached {
		return false, err
	}
	w.streams.Drop(e.ready)
	e.tell(&e.begun, &e.onBegun)
	return true, nil
}

// finish drops the mark of the oldest call, which is done.
func (w *World) finish(c *communicator) {
	w.mu.Lock()
	first := c.open[0]
	w.streams.Drop(first.mark)
	first.done, first.call.Ended = true, time.Now()
	c.open = c.open[1:]
	w.mu.Unlock()
	first.tell(&first.over, &first.onOver)
}
