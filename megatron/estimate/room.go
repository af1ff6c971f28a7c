package estimate

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"monotron/csrc/device"
)

// Room is memory that a run may still take.
type Room struct {
	Bytes int64
	Of    string // whose it is, as a sentence names it
}

// Unlimited is room for whatever comes.
var Unlimited = Room{math.MaxInt64, "not known here"}

func (r Room) String() string { return fmt.Sprintf("%s (%s)", device.Size(r.Bytes), r.Of) }

// HostRoom is what this process may still take of the host's memory: what the machine has
// left, or less where the process's control group has a limit. Not known: no limit.
func HostRoom() Room { return hostRoom("/") }

func hostRoom(root string) Room {
	room := Unlimited
	text, err := os.ReadFile(filepath.Join(root, "proc/meminfo"))
	if err != nil {
		return room // no Linux
	}
	if kib, found := field(string(text), "MemAvailable:"); found {
		room = Room{kib << 10, "free on this machine"}
	}
	groups, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return room
	}
	for _, g := range memoryGroups(string(groups)) {
		if left, found := g.left(filepath.Join(root, "sys/fs/cgroup")); found && left < room.Bytes {
			room = Room{left, "left of the control group's limit"}
		}
	}
	return room
}

// memoryGroup is a control group that limits memory: version 2's, or 1's.
type memoryGroup struct {
	under        string // the tree's root
	path         string
	limit, use   string // names of its files
	file, shared string // fields of memory.stat
}

// memoryGroups reads /proc/self/cgroup.
func memoryGroups(text string) (all []memoryGroup) {
	for _, line := range strings.Split(text, "\n") {
		number, rest, _ := strings.Cut(line, ":")
		controllers, path, found := strings.Cut(rest, ":")
		switch {
		case !found:
		case number == "0" && controllers == "":
			all = append(all, memoryGroup{"", path, "memory.max", "memory.current", "file ", "shmem "}, memoryGroup{"unified", path, "memory.max", "memory.current", "file ", "shmem "})
		case strings.Contains(","+controllers+",", ",memory,"):
			all = append(all, memoryGroup{"memory", path, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache ", "total_shmem "})
		}
	}
	return all
}

// left is the least that the group or one above it has left; files that are cached go when
// memory is wanted, but for those of /dev/shm, which are counted with them. In a container the group may be the tree's root.
func (g memoryGroup) left(root string) (least int64, found bool) {
	least = math.MaxInt64
	for path := filepath.Join("/", g.path); ; path = filepath.Dir(path) {
		folder := filepath.Join(root, g.under, path)
		limit, limited := number(filepath.Join(folder, g.limit))
		used, known := number(filepath.Join(folder, g.use))
		if limited && known {
			if stat, err := os.ReadFile(filepath.Join(folder, "memory.stat")); err == nil {
				cached, _ := field(string(stat), g.file)
				shared, _ := field(string(stat), g.shared)
				used = max(0, used-max(0, cached-shared))
			}
			least, found = min(least, max(0, limit-used)), true
		}
		if path == "/" {
			return least, found
		}
	}
}

// number is the one that a file holds; "max" is none.
func number(file string) (n int64, is bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	n, err = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil
}

// field is the number that follows a word at the start of a line.
func field(text, word string) (n int64, found bool) {
	for _, line := range strings.Split(text, "\n") {
		rest, is := strings.CutPrefix(line, word)
		if !is {
			continue
		}
		first, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
		n, err := strconv.ParseInt(first, 10, 64)
		return n, err == nil
	}
	return 0, false
}
