package rendezvous

import (
	"bytes"
	"context"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// noted keeps what it hears, and calls heard with it.
type noted struct {
	mu    sync.Mutex
	text  bytes.Buffer
	heard func(text string)
}

func (n *noted) Write(b []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.text.Write(b)
	n.heard(n.text.String())
	return len(b), nil
}

// Claim: an attempt to connect to a host that drops it, as one does whose queue of connections is full, ends after seconds
// and is made again: the rank reports that it is waiting, and does not wait for the kernel's last attempt.
func TestDroppedConnectionIsMadeAgain(t *testing.T) {
	if testing.Short() {
		t.Skip("some seconds of waiting: not with -short")
	}
	// A port that takes one connection, which nobody accepts, and drops the others.
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(name.(*syscall.SockaddrInet4).Port))
	for range 3 {
		if c, err := net.DialTimeout("tcp", addr, 200*time.Millisecond); err == nil {
			defer c.Close()
		}
	}
	// The rank says so long before it gives up.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	said := false
	c := config(addr, 1, 2)
	c.Timeout = time.Minute
	c.Notes = &noted{heard: func(text string) {
		if said = strings.Contains(text, "rank 1 is still waiting for rank 0"); said {
			cancel()
		}
	}}
	if _, err := Join(ctx, c); err == nil {
		t.Error("nobody accepts, and the rank has joined")
	}
	if !said {
		t.Error("the rank did not say that it is waiting")
	}
}
