package rendezvous

import (
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
	if _, err := serve(c); exitcode.CodeOf(err) != exitcode.Usage || !strings.Contains(err.Error(), "is in use by another run") {
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
