//go:build !linux

package rendezvous

// LocalName is where the ranks of a run on this host find each other: nowhere on systems without Linux's abstract sockets, where each rank
// has its own connection with rank 0.
func LocalName(secret []byte, addr string) string { return "" }
