package pretrain

import (
	"syscall"
	"testing"
)

// smallDisk mounts a file system of the given size on dir until the test ends.
func smallDisk(t *testing.T, dir, size string) bool {
	t.Helper()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		return false
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return true
}
