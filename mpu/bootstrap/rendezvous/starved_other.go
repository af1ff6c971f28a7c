//go:build !linux

package rendezvous

// starved: this system does not say what other processes wait for.
func starved(int) bool { return false }
