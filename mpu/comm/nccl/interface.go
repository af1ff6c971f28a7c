package nccl

import (
	"net"
	"os"
)

// socketInterface is NCCL's variable of the interfaces that it meets over.
const socketInterface = "NCCL_SOCKET_IFNAME"

// Lead has NCCL meet over the interface that has this rank's address, by which it reaches
// rank 0, unless somebody has chosen: NCCL would take the first that it finds, maybe a
// container's bridge. To be called before NCCL is opened, which reads it once.
func Lead(addr string) error {
	if _, set := os.LookupEnv(socketInterface); set {
		return nil
	}
	all, err := net.Interfaces()
	if err != nil {
		return nil // NCCL may know more
	}
	for _, one := range all {
		if addrs, err := one.Addrs(); err == nil && one.Flags&net.FlagLoopback == 0 && has(addrs, addr) {
			return os.Setenv(socketInterface, "="+one.Name) // that one, not all whose names begin so
		}
	}
	return nil
}

// has reports whether one of an interface's addresses is that of host:port.
func has(addrs []net.Addr, addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && ip != nil && n.IP.Equal(ip) {
			return true
		}
	}
	return false
}
