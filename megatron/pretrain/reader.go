package pretrain

import (
	"context"
	"errors"
	"io"
	"os/signal"
	"sync"
	"syscall"

	"monotron/megatron/training"
)

// endWithReader has a run save after its step and end with 75 when nobody reads its
// lines any more, as behind `| head`: the signal that such a line brings would end
// it at once.
func endWithReader(ctx context.Context, w training.Streams) (context.Context, io.Writer) {
	signal.Ignore(syscall.SIGPIPE)
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, &readLines{out: w.Out, gone: sync.OnceFunc(func() {
		// The line that is being written keeps the bar, which a note waits for.
		go w.Notes.Warn("standard output is closed: the run saves after this step")
		cancel(errors.New("closed standard output"))
	})}
}

// readLines passes lines on as long as somebody reads them.
type readLines struct {
	out  io.Writer
	gone func()
}

func (r *readLines) Write(b []byte) (int, error) {
	n, err := r.out.Write(b)
	if errors.Is(err, syscall.EPIPE) {
		r.gone()
		return len(b), nil // what is left to say is for nobody
	}
	return n, err
}
