//go:build !linux

package spin

// yield does nothing here.
func yield() {}
