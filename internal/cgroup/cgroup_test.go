package cgroup

import (
	"math"
	"os"
	"path/filepath"
	"testing"
)

// Claim: the least share of processors that the process's group or one above it has is found in
// both versions, on a host and in a container.
func TestProcessors(t *testing.T) {
	for _, c := range []struct {
		name, groups string
		files        map[string]string
		want         float64
	}{
		{"version 2", "0::/a/b\n", map[string]string{"a/b/cpu.max": "max 100000\n", "a/cpu.max": "50000 100000\n"}, 0.5},
		{"a container", "0::/system.slice/docker-1.scope\n", map[string]string{"cpu.max": "150000 100000\n"}, 1.5},
		{"version 1", "4:cpu,cpuacct:/x\n0::/\n", map[string]string{"cpu/x/cpu.cfs_quota_us": "100000\n", "cpu/x/cpu.cfs_period_us": "100000\n"}, 1},
		{"version 1 without a limit", "4:cpu:/\n", map[string]string{"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, math.Inf(1)},
		{"both", "4:memory:/a\n0::/\n", map[string]string{"unified/cpu.max": "20000 10000\n"}, 2},
		{"nonsense", "0::/\nx\n", map[string]string{"cpu.max": "a b\n"}, math.Inf(1)},
		{"no groups", "", nil, math.Inf(1)},
	} {
		root := t.TempDir()
		write := func(name, text string) {
			t.Helper()
			if err := os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		write("proc/self/cgroup", c.groups)
		for name, text := range c.files {
			write(filepath.Join("sys/fs/cgroup", name), text)
		}
		if got := Processors(root); got != c.want {
			t.Errorf("%s: %g, want %g", c.name, got, c.want)
		}
	}
}
