package report

import (
	"net"
	"sync"
	"syscall"
)

// mostConnections are open at once to what a run serves.
const mostConnections = 256

// Listen listens on a TCP address for who looks at a run. Of the files that this process may have
// open, who looks gets a quarter at most: whoever comes then waits, and the run can save.
func Listen(addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	return limited(l, share()), nil
}

// share is how many connections there may be.
func share() int {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return mostConnections
	}
	return int(max(1, min(mostConnections, files.Cur/4)))
}

// narrow is a listener with so many places.
type narrow struct {
	net.Listener
	places chan struct{}
	closed chan struct{}
	once   sync.Once
}

func limited(l net.Listener, n int) net.Listener {
	return &narrow{Listener: l, places: make(chan struct{}, n), closed: make(chan struct{})}
}

// Accept waits for a place, then for a connection.
func (l *narrow) Accept() (net.Conn, error) {
	select {
	case l.places <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.places
		return nil, err
	}
	return &placed{Conn: c, leave: sync.OnceFunc(func() { <-l.places })}, nil
}

// Close also ends the waiting.
func (l *narrow) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// placed is a connection that has a place until it is closed.
type placed struct {
	net.Conn
	leave func()
}

func (c *placed) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
