package plan

import (
	"math"
	"os"
	"path/filepath"
	"testing"
)

// Claim: what is left is the machine's free memory, or what a control group over the process
// leaves, whichever is less; cached files count as free (the kernel's
// Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst).
func TestHostCapacity(t *testing.T) {
	const meminfo = "MemTotal:       24000 kB\nMemFree:        1000 kB\nMemAvailable:   8000 kB\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  Capacity
	}{
		"no Linux": {nil, Capacity{math.MaxInt64, "not known here"}},
		"free":     {map[string]string{"proc/meminfo": meminfo}, Capacity{8000 << 10, "free on this machine"}},
		"no limit": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/b/memory.current": "5\n"},
			Capacity{8000 << 10, "free on this machine"}},
		"limit above": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/memory.max": "1000\n", "sys/fs/cgroup/a/memory.current": "400\n",
			"sys/fs/cgroup/a/memory.stat": "anon 100\nfile 300\nshmem 50\n"}, Capacity{850, "left of the control group's limit"}},
		"container": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "0::/../x\n", "sys/fs/cgroup/memory.max": "1000\n", "sys/fs/cgroup/memory.current": "400\n"},
			Capacity{600, "left of the control group's limit"}},
		"version 1": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "3:cpu,cpuacct:/q\n4:memory:/q\n", "sys/fs/cgroup/memory/q/memory.limit_in_bytes": "1000\n",
			"sys/fs/cgroup/memory/q/memory.usage_in_bytes": "700\n", "sys/fs/cgroup/memory/q/memory.stat": "cache 1\ntotal_cache 200\ntotal_shmem 30\n"}, Capacity{470, "left of the control group's limit"}},
		"more than there is": {map[string]string{"proc/meminfo": meminfo, "proc/self/cgroup": "4:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
			"sys/fs/cgroup/memory/memory.usage_in_bytes": "1\n"}, Capacity{8000 << 10, "free on this machine"}},
		"nonsense": {map[string]string{"proc/meminfo": "MemAvailable: many\n", "proc/self/cgroup": "x\n\n0\n:::\n"}, Capacity{math.MaxInt64, "not known here"}},
	} {
		root := t.TempDir()
		for file, text := range c.files {
			path := filepath.Join(root, file)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := hostCapacity(root); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
