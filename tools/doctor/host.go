package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"monotron/csrc/device"
	"monotron/csrc/gpus"
	"monotron/internal/cgroup"
	"monotron/internal/system"
)

// host is the machine as its files show it; tests put other files under root.
type host struct {
	root      string // "/" but in tests
	cwd       string
	libraries []string // paths that the run-time linker knows
	gpus      func() (gpus.Survey, error)
	visible   gpus.Environment
}

func thisHost() host {
	value, set := os.LookupEnv("CUDA_VISIBLE_DEVICES")
	return host{root: "/", cwd: ".", libraries: knownLibraries(), gpus: gpus.Read, visible: gpus.Environment{Value: value, Set: set}}
}

// read is a file's text, "" where it cannot be read.
func (h host) read(path string) string {
	text, _ := os.ReadFile(filepath.Join(h.root, path)) // absence is an answer here
	return string(text)
}

func (h host) has(path string) bool {
	_, err := os.Stat(filepath.Join(h.root, path))
	return err == nil
}

func (h host) cKernels() Finding {
	f := Finding{Name: "C kernels", State: OK, Found: "built in (cgo)"}
	if !builtWithC {
		f = Finding{Name: "C kernels", State: Missing, Found: "this program was built without cgo",
			Works: "everything, with --device ref (plain Go)",
			Costs: "most of the speed: compare the devices' GFLOP/s below with those of a build with cgo",
			Fix:   "install a C compiler (apt-get install -y gcc libc6-dev) and build again: make build"}
	}
	return f
}

// instructionSets are those the kernels can use, by /proc/cpuinfo's names.
var instructionSets = []struct{ flag, name string }{
	{"avx2", "AVX2"}, {"avx512f", "AVX-512"}, {"avx512_bf16", "AVX-512 bf16"}, {"amx_bf16", "AMX bf16"},
	{"asimd", "NEON"}, {"bf16", "bf16"},
}

func (h host) processor() Finding {
	info := h.read("proc/cpuinfo")
	model, flags := cpuField(info, "model name"), strings.Fields(cpuField(info, "flags")+" "+cpuField(info, "Features"))
	if model == "" {
		model = runtime.GOARCH
	}
	var sets []string
	for _, s := range instructionSets {
		if slices.Contains(flags, s.flag) {
			sets = append(sets, s.name)
		}
	}
	f := Finding{Name: "processor", State: OK}
	f.Found = fmt.Sprintf("%s, %d cores, %d threads used; %s", model, runtime.NumCPU(), device.Cores(), strings.Join(sets, ", "))
	if len(sets) == 0 {
		f.State = Note
		f.Found += "no vector instructions known to the kernels"
		f.Works, f.Costs = "everything, with portable C", "speed: vectors of 4 numbers instead of 8 or 16"
	}
	return f
}

func cpuField(info, name string) string {
	for line := range strings.Lines(info) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func (h host) memory() Finding {
	info := h.read("proc/meminfo")
	total, free := kib(info, "MemTotal"), kib(info, "MemAvailable")
	f := Finding{Name: "memory", State: OK, Found: fmt.Sprintf("%s, %s free", size(total), size(free))}
	least := total
	for _, g := range cgroup.Of(h.root, "memory") {
		if limit, limited := g.Number("memory.max", "memory.limit_in_bytes"); limited {
			least = min(least, limit)
		}
	}
	if least < total {
		f.Found += fmt.Sprintf("; this container may use %s", size(least))
	}
	if total == 0 {
		f.State, f.Found = Note, "unknown: /proc/meminfo cannot be read"
	}
	return f
}

// kib reads a line of /proc/meminfo, in bytes.
func kib(info, name string) int64 {
	n, _ := strconv.ParseInt(strings.TrimSuffix(cpuField(info, name), " kB"), 10, 64) // 0: unknown
	return n << 10
}

func (h host) sharedMemory() Finding {
	_, free, err := system.DiskSpace(filepath.Join(h.root, "dev/shm"))
	f := Finding{Name: "/dev/shm", State: OK, Found: size(free) + " free"}
	switch {
	case err != nil:
		f.State, f.Found, f.Works = Missing, err.Error(), "runs of one process"
		f.Fix = "mount -t tmpfs tmpfs /dev/shm"
	case free < 256<<20:
		f.State, f.Works = Note, "runs of one process; several processes on one host share bytes there"
		f.Fix = "mount -o remount,size=1G /dev/shm; in a container: --shm-size=1g"
	}
	return f
}

func (h host) hugePages() Finding {
	setting := h.read("sys/kernel/mm/transparent_hugepage/enabled")
	f := Finding{Name: "huge pages", State: OK, Found: "given on request"}
	if !strings.Contains(setting, "[always]") && !strings.Contains(setting, "[madvise]") {
		f.State, f.Found, f.Works = Note, "switched off", "everything"
		f.Costs = "some address translation in large matrices"
		f.Fix = "as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"
	}
	return f
}

func (h host) disk() Finding {
	total, free, err := system.DiskSpace(h.cwd)
	if err != nil {
		return Finding{Name: "disk", State: Note, Found: err.Error()}
	}
	f := Finding{Name: "disk", State: OK, Found: fmt.Sprintf("%s free of %s in the current folder", size(free), size(total))}
	if free < 2<<30 {
		f.State = Note
		f.Works = "small models; a checkpoint takes 14 to 18 bytes a parameter, and free space is checked before each save"
	}
	return f
}

// size writes bytes for a person.
func size(bytes int64) string {
	if bytes >= 1<<30 {
		return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30))
	}
	return fmt.Sprintf("%.0f MiB", float64(bytes)/(1<<20))
}
