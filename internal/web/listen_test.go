package web

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"monotron/internal/exitcode"
)

// TestPortIsTaken: the error names the address and what to do.
func TestPortIsTaken(t *testing.T) {
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for addr, says := range map[string]string{l.Addr().String(): "another program uses the port of", "192.0.2.1:0": "not an address of this host"} {
		if _, err := Listen(addr); err == nil || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), addr) {
			t.Errorf("%s: %v", addr, err)
		}
	}
}

// TestConnectionsWaitForASlot: of more connections than slots, as many are let in, the
// next when one has gone; closing ends the waiting.
func TestConnectionsWaitForASlot(t *testing.T) {
	l, err := ListenUpTo("127.0.0.1:0", 2)
	if err != nil {
		t.Fatal(err)
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
	_ = first.Close() // gives its slot back once
	third := <-accepted
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("accepting ended by %v", err)
	}
	_, _ = second.Close(), third.Close()
}

// Claim (docs/logging.md): a number alone is a port of this host's loopback.
func TestPortAlone(t *testing.T) {
	l, err := Port("0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if host, _, err := net.SplitHostPort(l.Addr().String()); err != nil || host != "127.0.0.1" {
		t.Errorf("%s, %v", l.Addr(), err)
	}
}

// Claim (docs/serve.md): the address that is printed can be opened, also of a server on all addresses.
func TestReachable(t *testing.T) {
	for addr, want := range map[string]string{"0.0.0.0:0": "127.0.0.1", ":0": "127.0.0.1", "127.0.0.1:0": "127.0.0.1", "[::1]:0": "::1"} {
		l, err := Port(addr)
		if err != nil {
			t.Logf("%s: %v", addr, err) // a host without IPv6
			continue
		}
		at, everywhere := Reachable(l.Addr())
		host, _, err := net.SplitHostPort(at)
		if err != nil || host != want || everywhere != (addr == ":0" || addr == "0.0.0.0:0") {
			t.Errorf("%s: %s, everywhere %v, %v", addr, at, everywhere, err)
		}
		c, err := net.Dial("tcp", at)
		if err != nil {
			t.Errorf("%s: %v", addr, err)
			continue
		}
		c.Close()
		l.Close()
	}
}

// Claim: an address that cannot be is a wrong flag, in words for a person.
func TestWrongAddresses(t *testing.T) {
	for addr, want := range map[string]string{
		"127.0.0.1:99999": "127.0.0.1:99999 is not a valid address: invalid port; ports are from 0 to 65535",
		"nowhere":         "neither of the form ADDRESS:PORT",
		"300.1.1.1:80":    `no host has the name or address "300.1.1.1"`,
	} {
		if _, err := Port(addr); exitcode.CodeOf(err) != exitcode.Usage || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", addr, err, want)
		}
	}
}
