package rendezvous

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"monotron/internal/exitcode"
)

// Claim: where ranks meet is a free port that no outgoing connection is given, which rank 0
// finds free too.
func TestFreeAddr(t *testing.T) {
	for range 50 {
		addr, err := FreeAddr()
		if err != nil {
			t.Fatal(err)
		}
		if at := netip.MustParseAddrPort(addr); at.Port() < 20000 || at.Port() >= 32000 || !at.Addr().IsLoopback() {
			t.Errorf("%s is among the ports of outgoing connections, or no loopback", addr)
		}
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() // later ones are others
	}
}

// Claim: a port that somebody has for a moment is waited for; one that stays taken is an error
// that starting again does not cure.
func TestTakenPort(t *testing.T) {
	l, err := net.Listen("tcp", freeAddr(t))
	if err != nil {
		t.Fatal(err)
	}
	c := config(l.Addr().String(), 0, 1)
	c.Timeout = 100 * time.Millisecond
	if _, err := serve(c); exitcode.CodeOf(err) != exitcode.Usage || !strings.Contains(err.Error(), "uses the port of") {
		t.Errorf("a taken port: %v", err)
	}
	c.Timeout = 30 * time.Second
	time.AfterFunc(100*time.Millisecond, func() { l.Close() })
	s, err := serve(c)
	if err != nil {
		t.Fatal(err)
	}
	s.stop()
}

// Claim (docs/launch.md): rank 0 need not resolve the name by which others reach it; addresses
// and localhost are what they say.
func TestOwnName(t *testing.T) {
	for addr, want := range map[string][2]bool{
		"127.0.0.1:1": {false, false}, "[::1]:1": {false, false}, "localhost:1": {false, false}, ":1": {false, false}, "no port": {false, false},
		"rank0.invalid:1": {true, false},
	} {
		if first, other := OwnName(addr, true), OwnName(addr, false); first != want[0] || other != want[1] {
			t.Errorf("%s: rank 0 %v, others %v, want %v", addr, first, other, want)
		}
	}
	addr := freeAddr(t)
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	sessions, errs := joinAll([]Config{config("rank0.invalid:"+port, 0, 2), config(addr, 1, 2)}, 0)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	closeAll(t, sessions)
}
