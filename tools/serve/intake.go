package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// Bodies in flight: read, and not yet made into texts of tokens. What decoding makes of a body
// takes up to some fifty times its bytes, so that not many large ones may be decoded at once.
const (
	smallBody   = 64 << 10         // bytes; bodies up to here never wait for larger ones
	smallBodies = 256              // so many at once
	largeBodies = 2                // of --max-body bytes at once
	turnTime    = 10 * time.Second // to wait for a turn
	returnAfter = 2 * time.Second  // without a large body, until memory goes back to the system
)

// intake bounds the memory that bodies in flight take.
type intake struct {
	most  int64         // bytes of a body
	wait  time.Duration // for a turn
	small *semaphore.Weighted
	large *semaphore.Weighted

	mu     sync.Mutex
	giving *time.Timer // gives memory back when it fires
}

func newIntake(most int64) *intake {
	return &intake{most: most, wait: turnTime, small: semaphore.NewWeighted(smallBodies), large: semaphore.NewWeighted(largeBodies * most)}
}

// busy is the answer to a body that had no turn.
var busy = &problem{Status: http.StatusServiceUnavailable, Message: "too many large requests at once; try again later", Type: "unavailable_error", RetryAfter: turnTime}

// read is the body of r, once there is memory for it. Close gives its share back.
func (in *intake) read(w http.ResponseWriter, r *http.Request) (*inFlight, error) {
	if r.ContentLength > in.most {
		return nil, &http.MaxBytesError{Limit: in.most}
	}
	if err := in.turn(r.Context(), in.small, 1); err != nil {
		return nil, err
	}
	b := &inFlight{done: func() { in.small.Release(1) }}
	body := http.MaxBytesReader(w, r.Body, in.most)
	var err error
	if b.data, err = io.ReadAll(io.LimitReader(body, smallBody)); err == nil && len(b.data) == smallBody {
		in.small.Release(1)
		b.done = func() {}
		if err = in.turn(r.Context(), in.large, in.most); err == nil {
			b.done = func() { in.large.Release(in.most); in.giveBack() }
			b.data, err = appendAll(b.data, body)
		}
	}
	if err != nil {
		b.Close()
		return nil, unread(err)
	}
	return b, nil
}

// turn waits for a share of the memory that bodies may take.
func (in *intake) turn(ctx context.Context, s *semaphore.Weighted, n int64) error {
	ctx, cancel := context.WithTimeout(ctx, in.wait)
	defer cancel()
	if s.Acquire(ctx, n) != nil {
		return busy
	}
	return nil
}

func appendAll(data []byte, r io.Reader) ([]byte, error) {
	rest, err := io.ReadAll(r)
	return append(data, rest...), err
}

// unread is the answer to a client whose body could not be read.
func unread(err error) error {
	var large *http.MaxBytesError
	var p *problem
	if errors.As(err, &large) || errors.As(err, &p) {
		return err
	}
	return &problem{Status: http.StatusBadRequest, Message: fmt.Sprintf("the request's body ended early: %s", err)}
}

// giveBack returns the memory of large bodies to the system soon, unless more come.
func (in *intake) giveBack() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.giving == nil {
		in.giving = time.AfterFunc(returnAfter, debug.FreeOSMemory)
		return
	}
	in.giving.Reset(returnAfter)
}

// inFlight is a body that has been read, as the Body of its request.
type inFlight struct {
	data []byte
	done func()
	once sync.Once
}

// Close gives the body's share back; nothing of the body may be used from then on.
func (b *inFlight) Close() error {
	b.once.Do(func() {
		b.data = nil
		b.done()
	})
	return nil
}

// Read is not used: decode takes the data.
func (b *inFlight) Read([]byte) (int, error) { return 0, io.EOF }
