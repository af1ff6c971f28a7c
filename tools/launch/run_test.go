package launch

import (
	"net"
	"net/netip"
	"testing"
)

// Claim: where ranks meet is a free port that no outgoing connection is given, which rank 0
// finds free too.
func TestFreeAddr(t *testing.T) {
	for range 50 {
		addr, err := freeAddr()
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
