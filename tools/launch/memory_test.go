package launch

import (
	"os"
	"path/filepath"
	"testing"
)

// Claim (docs/failures.md): the counter of processes ended for lack of memory is found
// in both versions of control groups, on a host and in a container (the kernel's
// Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst).
func TestOOMKills(t *testing.T) {
	for _, test := range []struct {
		name, groups, file, text string
		want                     int
	}{
		{"version 2", "0::/user.slice/run-1.scope\n", "user.slice/run-1.scope/memory.events", "low 0\nhigh 0\nmax 7\noom 3\noom_kill 2\noom_group_kill 0\n", 2},
		{"version 2, a container", "0::/\n", "memory.events", "oom_kill 1\n", 1},
		{"version 2, a path from outside the container", "0::/system.slice/docker-1.scope\n", "memory.events", "oom_kill 4\n", 4},
		{"version 1", "12:cpu,cpuacct:/x\n4:memory:/slurm/job_3\n0::/x\n", "memory/slurm/job_3/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n", 5},
		{"both", "4:memory:/a\n0::/\n", "unified/memory.events", "oom_kill 6\n", 6},
		{"none", "0::/\n", "memory.events", "max 3\n", 0},
	} {
		root := t.TempDir()
		for name, text := range map[string]string{"proc/self/cgroup": test.groups, "sys/fs/cgroup/" + test.file: test.text} {
			path := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := killsForMemory(root); got != test.want {
			t.Errorf("%s: %d, want %d", test.name, got, test.want)
		}
	}
}
