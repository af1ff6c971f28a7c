//go:build !linux

package preflight

// sharedSpace is not known here.
func sharedSpace() int64 { return -1 }
