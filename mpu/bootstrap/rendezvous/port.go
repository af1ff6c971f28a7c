package rendezvous

import (
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"monotron/internal/exitcode"
)

// PortOf is one of the ports that Linux gives to nobody who does not ask for it: outgoing
// connections get those from 32,768 on.
func PortOf(n uint32) int { return 20000 + int(n%12000) }

// AnyPort is one of them by chance.
func AnyPort() int { return PortOf(rand.Uint32()) }

// FreeAddr is where ranks of this host alone can meet. A port that the system chose could be
// somebody's outgoing connection before rank 0 has it.
func FreeAddr() (addr string, err error) {
	for range 100 {
		addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(AnyPort()))
		var l net.Listener
		if l, err = net.Listen("tcp", addr); err == nil {
			return addr, l.Close()
		}
	}
	return "", exitcode.With(exitcode.IO, err)
}

// Address joins a host and a port. The host may be an IPv6 address in brackets, as in a URL.
func Address(host string, port int) string {
	return net.JoinHostPort(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"), strconv.Itoa(port))
}

// OwnName reports whether the host of addr is this one, by a name that does not lead to an
// address by which other hosts reach it: a name that this host cannot resolve, or that it
// resolves to loopback, as Debian's 127.0.1.1. Who has it listens on all interfaces, and
// is reached by the name, as other hosts resolve it. Rank 0 (first) must run on that host.
func OwnName(addr string, first bool) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil || host == "" || host == "localhost" || net.ParseIP(host) != nil {
		return false
	}
	short := func(name string) string { s, _, _ := strings.Cut(name, "."); return strings.ToLower(s) }
	here, err := os.Hostname()
	same := err == nil && short(host) == short(here)
	if !first && !same {
		return false
	}
	found, err := net.LookupIP(host)
	return err != nil || !slices.ContainsFunc(found, func(ip net.IP) bool { return !ip.IsLoopback() })
}

// onAll is the address of a port on all interfaces, onLoopback on this host alone.
func onAll(addr string) string {
	_, port, _ := net.SplitHostPort(addr) // OwnName has read it
	return net.JoinHostPort("", port)
}

func onLoopback(addr string) string {
	_, port, _ := net.SplitHostPort(addr) // OwnName has read it
	return net.JoinHostPort("localhost", port)
}
