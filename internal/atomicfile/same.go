package atomicfile

import "os"

// Same reports whether two paths are names of one file or folder, which exists.
func Same(a, b string) bool {
	x, err := os.Stat(a)
	y, other := os.Stat(b)
	return err == nil && other == nil && os.SameFile(x, y)
}
