package plan

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"monotron/csrc/device"
	"monotron/internal/cgroup"
	"monotron/internal/system"
)

// Capacity is memory that a run may still take.
type Capacity struct {
	Bytes int64
	Of    string // whose it is, as a sentence names it
}

// Unlimited is memory without a limit.
var Unlimited = Capacity{math.MaxInt64, "not known here"}

func (r Capacity) String() string { return fmt.Sprintf("%s (%s)", device.Size(r.Bytes), r.Of) }

// HostCapacity is what this process may still take of the host's memory: what the machine has
// left, or less where the process's control group has a limit. Not known: no limit.
func HostCapacity() Capacity { return hostCapacity("/") }

// ProcessCapacity is HostCapacity, or less where the process may not map as much (ulimit -v).
func ProcessCapacity() Capacity {
	capacity := HostCapacity()
	limit, known := system.AddressSpace()
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil || !known {
		return capacity
	}
	pages, _, _ := strings.Cut(string(statm), " ")
	mapped, err := strconv.ParseUint(pages, 10, 64)
	if mapped *= uint64(os.Getpagesize()); err == nil && limit < math.MaxInt64 {
		if left := int64(limit - min(limit, mapped)); left < capacity.Bytes {
			capacity = Capacity{left, "left of the address space that ulimit -v allows"}
		}
	}
	return capacity
}

func hostCapacity(root string) Capacity {
	capacity := Unlimited
	text, err := os.ReadFile(filepath.Join(root, "proc/meminfo"))
	if err != nil {
		return capacity // no Linux
	}
	if kib, found := field(string(text), "MemAvailable:"); found {
		capacity = Capacity{kib << 10, "free on this machine"}
	}
	for _, g := range cgroup.Of(root, "memory") {
		if left, limited := leftOf(g); limited && left < capacity.Bytes {
			capacity = Capacity{left, "left of the control group's limit"}
		}
	}
	return capacity
}

// leftOf is what a group has left of its limit; files that are cached go when memory is
// wanted, but for those of /dev/shm, which are counted with them.
func leftOf(g cgroup.Group) (bytes int64, limited bool) {
	limit, limited := g.Number("memory.max", "memory.limit_in_bytes")
	used, known := g.Number("memory.current", "memory.usage_in_bytes")
	if !limited || !known {
		return 0, false
	}
	files, shared := "file ", "shmem "
	if g.Version == 1 {
		files, shared = "total_cache ", "total_shmem "
	}
	stat := g.Read("memory.stat", "memory.stat")
	cached, _ := field(stat, files)
	inMemory, _ := field(stat, shared)
	return max(0, limit-max(0, used-max(0, cached-inMemory))), true
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
