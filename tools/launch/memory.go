package launch

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// killsForMemory is how often the kernel has ended a process of this control group
// for lack of memory; 0 where that is not told.
func killsForMemory() int {
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return 0 // no Linux
	}
	return oomKills(string(groups), "/sys/fs/cgroup")
}

// oomKills reads the counter of the control group that /proc/self/cgroup names, in
// either version's tree. In a container the group may be the tree's root.
func oomKills(groups, root string) int {
	for _, line := range strings.Split(groups, "\n") {
		number, rest, _ := strings.Cut(line, ":")
		controllers, path, found := strings.Cut(rest, ":")
		var files []string
		switch {
		case !found:
		case number == "0" && controllers == "":
			files = []string{filepath.Join(root, path, "memory.events"), filepath.Join(root, "unified", path, "memory.events"), filepath.Join(root, "memory.events")}
		case strings.Contains(","+controllers+",", ",memory,"):
			files = []string{filepath.Join(root, "memory", path, "memory.oom_control"), filepath.Join(root, "memory", "memory.oom_control")}
		}
		for _, file := range files {
			if n, found := counted(file); found {
				return n
			}
		}
	}
	return 0
}

// counted reads the line oom_kill of a file.
func counted(file string) (n int, found bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	for _, line := range strings.Split(string(text), "\n") {
		if count, is := strings.CutPrefix(line, "oom_kill "); is {
			n, err = strconv.Atoi(strings.TrimSpace(count))
			return n, err == nil
		}
	}
	return 0, false
}
