package cgroup

import "monotron/internal/system"

// Files is one part in `parts` of the files that this process may have open, at least 1 and at
// most `most`: so many connections of others it can take, and still open its own files.
func Files(parts uint64, most int) int {
	limit, known := system.OpenFiles()
	if !known {
		return most
	}
	return int(max(1, min(uint64(most), limit/parts)))
}
