package rendezvous

import (
	"fmt"
	"path/filepath"
	"strings"

	"monotron/internal/exitcode"
)

// starved tells whether a process of this host wants a processor and is not given one, or
// runs: it is not stopped, and will answer once it has its turn.
func starved(pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		return false
	}
	for _, path := range threads {
		text, err := exitcode.ReadFile(path, 4<<10)
		if at := strings.LastIndexByte(string(text), ')'); err == nil && at >= 0 && strings.HasPrefix(string(text[at+1:]), " R") {
			return true
		}
	}
	return false
}
