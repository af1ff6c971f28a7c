package rendezvous

import "encoding/hex"

// LocalName is where the ranks of a run on this host find each other: a name of Linux's abstract sockets, which nobody
// can guess who does not know the run's secret, and which the kernel removes with the process that has it. Ranks in different network
// namespaces have different ones, as if they were on different hosts.
func LocalName(secret []byte, addr string) string {
	return "@monotron-" + hex.EncodeToString(proof(secret, "host", []byte(addr), nil)[:16])
}
