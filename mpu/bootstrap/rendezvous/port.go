package rendezvous

import (
	"math/rand/v2"
	"net"
	"strconv"

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
