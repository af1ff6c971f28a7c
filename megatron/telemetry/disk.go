package telemetry

import "monotron/internal/system"

// FreeBytes are those that a disk has for who asks; not ok: nobody knows.
func FreeBytes(folder string) (bytes int64, ok bool) {
	total, free, err := system.DiskSpace(folder)
	if err != nil || total == 0 {
		return 0, false
	}
	return free, true
}
