package rendezvous

import (
	"net"
	"time"

	"monotron/internal/exitcode"
)

// Listener is a port that stays open from one gathering to the next: while nobody serves there,
// who calls waits, and knows that this process lives.
type Listener struct{ *net.TCPListener }

// Listen opens the port of an address; port 0 is any.
func Listen(addr string) (*Listener, error) {
	l, err := listen(Config{Addr: addr, Timeout: portTime})
	if err != nil {
		return nil, exitcode.With(exitcode.IO, err)
	}
	return &Listener{l.(*net.TCPListener)}, nil
}

// open lets a server accept.
func (l *Listener) open() error { return l.SetDeadline(time.Time{}) }

// Close ends what accepts, as a server's end does; the port stays open. End closes it.
func (l *Listener) Close() error { return l.SetDeadline(time.Unix(1, 0)) }

// End closes the port.
func (l *Listener) End() error { return l.TCPListener.Close() }

// Port is its number.
func (l *Listener) Port() int { return l.Addr().(*net.TCPAddr).Port }

// Lives reports whether a process has its port open at addr. A host that does not answer within
// the limit has none.
func Lives(addr string, limit time.Duration) bool {
	if OwnName(addr, false) {
		addr = onLoopback(addr)
	}
	conn, err := net.DialTimeout("tcp", addr, limit)
	if err != nil {
		return false
	}
	conn.Close() // it was asked nothing
	return true
}
