package launch

import (
	"strconv"
	"strings"

	"monotron/internal/cgroup"
)

// killsForMemory is how often the kernel has ended a process of this control group
// for lack of memory; 0 where that is not known. root is "/", but in tests.
func killsForMemory(root string) int {
	for _, g := range cgroup.Of(root, "memory") {
		for line := range strings.Lines(g.Read("memory.events", "memory.oom_control")) {
			if count, is := strings.CutPrefix(line, "oom_kill "); is {
				n, _ := strconv.Atoi(strings.TrimSpace(count)) // 0: not given
				return n
			}
		}
	}
	return 0
}
