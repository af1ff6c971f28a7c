package rendezvous

import (
	"errors"
	"io"
	"math/rand/v2"
	"syscall"
	"time"
)

// ErrDropped: the other end closed the connection before a proof. It may have had too many
// connections at once, so that the caller tries again.
var ErrDropped = errors.New("the peer closed the connection before it identified itself")

// DropTime is how long an end that closes every connection counts as one that has too many;
// afterwards it is taken for another program.
const DropTime = time.Minute

// isClosed reports whether an error of a connection is its end, from the other side.
func isClosed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// Backoff are the pauses between a caller's attempts: they grow to a second, and each is drawn by
// chance, so that thousands that were refused together do not come again together.
type Backoff struct{ last time.Duration }

// Next is the next pause.
func (b *Backoff) Next() time.Duration {
	b.last = min(max(10*time.Millisecond, 2*b.last), time.Second)
	return b.last/2 + rand.N(b.last)
}
