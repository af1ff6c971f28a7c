package report

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"time"
)

// TestConnectionsWaitForAPlace: of more who come than there are places, as many are let in, the
// next when one has gone; closing ends the waiting.
func TestConnectionsWaitForAPlace(t *testing.T) {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	few := files
	few.Cur = 11 // a quarter of them: two
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	l, err := Listen("127.0.0.1:0")
	if back := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &files); err != nil || back != nil {
		t.Fatal(err, back)
	}
	accepted, ended := make(chan net.Conn), make(chan error, 1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				ended <- err
				return
			}
			accepted <- c
		}
	}()
	for range 4 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	first, second := <-accepted, <-accepted
	select {
	case <-accepted:
		t.Fatal("a third has a place of two")
	case <-time.After(100 * time.Millisecond):
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	_ = first.Close() // gives its place back once
	third := <-accepted
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("accepting ended by %v", err)
	}
	_, _ = second.Close(), third.Close()
}
