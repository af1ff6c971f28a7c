package system

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// AnyThread reports whether a thread of the process is in a state, as Linux names it in /proc: R runs
// or waits for a processor, D waits for a disk or a file server, T is stopped. False where the system does
// not say.
func AnyThread(pid int, state byte) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		return false
	}
	for _, path := range threads {
		text, err := os.ReadFile(path)
		at := strings.LastIndexByte(string(text), ')') // ends the program's name, which may hold anything
		if err == nil && at >= 0 && strings.HasPrefix(string(text[at+1:]), " "+string(state)) {
			return true
		}
	}
	return false
}
