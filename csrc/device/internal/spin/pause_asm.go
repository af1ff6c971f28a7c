//go:build amd64 || arm64

package spin

// Pause waits for some ten nanoseconds.
//
//go:noescape
func Pause()
