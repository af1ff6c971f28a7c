package system

import (
	"fmt"
	"os"

	"golang.org/x/sys/windows"
)

// NoFollow is not a flag of Windows: symbolic links are followed there.
const NoFollow = 0

// DiskSpace returns the bytes of the disk that path lies on, and those that
// this user may still write.
func DiskSpace(path string) (total, free int64, err error) {
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return 0, 0, fmt.Errorf("%s: %w", path, err)
	}
	var available, all, unused uint64
	if err := windows.GetDiskFreeSpaceEx(name, &available, &all, &unused); err != nil {
		return 0, 0, fmt.Errorf("%s: %w", path, err)
	}
	return int64(all), int64(available), nil
}

// Links is the number of names that a file has; 1 where it is not known.
func Links(os.FileInfo) uint64 { return 1 }
