package report

import (
	"net"
	"syscall"

	"golang.org/x/net/netutil"
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
	return netutil.LimitListener(l, share()), nil
}

// share is how many connections there may be.
func share() int {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return mostConnections
	}
	return int(max(1, min(mostConnections, files.Cur/4)))
}
