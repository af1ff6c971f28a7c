package web

import (
	"errors"
	"net"
	"strconv"
	"syscall"

	"golang.org/x/net/netutil"

	"monotron/internal/cgroup"
	"monotron/internal/exitcode"
)

// mostConnections are open at once to what a run serves.
const mostConnections = 256

// Listen listens on a TCP address for viewers of a run. Of the files that this process may have
// open, viewers get a quarter at most: whoever comes then waits, and the run can save.
func Listen(addr string) (net.Listener, error) {
	return ListenUpTo(addr, cgroup.Files(4, mostConnections))
}

// ListenUpTo listens on a TCP address and has at most n connections open; further ones wait.
func ListenUpTo(addr string, n int) (net.Listener, error) {
	l, err := Port(addr)
	if err != nil {
		return nil, err
	}
	return netutil.LimitListener(l, n), nil
}

// Port listens on a TCP address; its error says what to do. A number alone is a port of this
// host's loopback.
func Port(addr string) (net.Listener, error) {
	if _, err := strconv.ParseUint(addr, 10, 16); err == nil {
		addr = net.JoinHostPort("127.0.0.1", addr)
	}
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return nil, exitcode.Errorf(exitcode.Usage, "%q is neither of the form ADDRESS:PORT, as in 127.0.0.1:8080, nor a port", addr)
	}
	l, err := net.Listen("tcp", addr)
	var wrong *net.AddrError
	var unknown *net.DNSError
	switch {
	case errors.As(err, &wrong):
		return nil, exitcode.Errorf(exitcode.Usage, "%s is not a valid address: %s; ports are from 0 to 65535", addr, wrong.Err)
	case errors.As(err, &unknown):
		return nil, exitcode.Errorf(exitcode.Usage, "%s: no host has the name or address %q; give an address of this host, such as 127.0.0.1", addr, unknown.Name)
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, exitcode.Errorf(exitcode.IO, "another program uses the port of %s; choose another port, or 0 for any free port", addr)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return nil, exitcode.Errorf(exitcode.Usage, "%s is not an address of this host", addr)
	case errors.Is(err, syscall.EACCES):
		return nil, exitcode.Errorf(exitcode.IO, "the port of %s is reserved for root; choose a port of 1024 or above", addr)
	}
	return l, err
}

// Reachable is a listener's address as a browser on this host can open it: who listens on all addresses is reached
// at the loopback address too. everywhere: it is one that listens so.
func Reachable(at net.Addr) (address string, everywhere bool) {
	tcp, is := at.(*net.TCPAddr)
	if !is || !tcp.IP.IsUnspecified() {
		return at.String(), false
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(tcp.Port)), true
}
