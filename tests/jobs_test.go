package tests

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestJobs runs the ready job scripts of docs/jobs and manifests of examples/kubernetes, and real launchers where
// they are installed.
func TestJobs(t *testing.T) {
	if testing.Short() {
		t.Skip("processes: not with -short")
	}
	l := newLaunching(t, program(t))
	l.must("pretrain_gpt " + jobFlags + "--train-iters 4 --world-size 8 --log-jsonl one.jsonl")
	t.Run("sbatch", func(t *testing.T) { sbatch(t, l) })
	t.Run("qsub", func(t *testing.T) { qsub(t, l) })
	t.Run("kubernetes", func(t *testing.T) { onKubernetes(t, l) })
	t.Run("mpirun", func(t *testing.T) { mpirun(t, l) })
}

// jobFlags are those of the job scripts: the usual device.
var jobFlags = strings.Replace(eight, "--device ref ", "", 1)

// tools is a folder that comes first in PATH, with scripts of these names.
func tools(t *testing.T, l *launching, scripts map[string]string) (path string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range scripts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/bash\n"+text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return dir + ":" + l.bin + ":" + os.Getenv("PATH")
}

// runJob runs a script as a batch system does, and compares its numbers.
func runJob(t *testing.T, l *launching, script string, environment ...string) {
	t.Helper()
	compareJob(t, l, exec.Command("bash", filepath.Join(repository, "docs", "jobs", script)), environment...)
}

func compareJob(t *testing.T, l *launching, job *exec.Cmd, environment ...string) {
	t.Helper()
	for _, left := range []string{"job.jsonl", "checkpoints"} {
		if err := os.RemoveAll(filepath.Join(l.dir, left)); err != nil {
			t.Fatal(err)
		}
	}
	job.Dir, job.Env = l.dir, append(os.Environ(), environment...)
	if out, err := job.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	l.same(t, "job.jsonl")
}

// Claim (docs/hosts.md): the ready sbatch script gives the
// numbers of one process, with an srun that sets the variables Slurm sets.
func sbatch(t *testing.T, l *launching) {
	srun := `while [ "${1#--}" != "$1" ]; do shift; done
for rank in 0 1 2 3 4 5 6 7; do
  SLURM_PROCID=$rank SLURM_LOCALID=$rank SLURM_STEP_ID=0 SLURM_STEP_TASKS_PER_NODE=8 SLURM_NODEID=0 "$@" &
  ranks+=($!)
done
code=0
for pid in "${ranks[@]}"; do wait "$pid" || code=$?; done
exit $code
`
	runJob(t, l, "train.sbatch", "PATH="+tools(t, l, map[string]string{"srun": srun}), "SLURM_NTASKS=8", fmt.Sprint("SLURM_JOB_ID=", os.Getpid()), "SLURM_JOB_NODELIST=localhost")
}

// Claim (docs/hosts.md): the ready PBS script gives them on the hosts of
// PBS_NODEFILE, reached by a real sshd.
func qsub(t *testing.T, l *launching) {
	config := sshd(t, l)
	ssh, err := exec.LookPath("ssh")
	if err != nil {
		t.Skip("there is no ssh here")
	}
	nodes := filepath.Join(t.TempDir(), "nodes")
	write(t, nodes, strings.Repeat("127.0.0.1\n", 4)+strings.Repeat("127.0.0.2\n", 4))
	runJob(t, l, "train.pbs", "PATH="+tools(t, l, map[string]string{"ssh": fmt.Sprintf("exec %s -F %s \"$@\"\n", ssh, config)}), "PBS_NODEFILE="+nodes, "PBS_O_WORKDIR="+l.dir, "PBS_JOBID=17.server")
}

// Claim (docs/launch.md): the same under Open MPI's mpirun, and under MPICH's.
func mpirun(t *testing.T, l *launching) {
	program, err := exec.LookPath("mpirun")
	if err != nil {
		t.Skip("there is no mpirun here (openmpi-bin or mpich)")
	}
	version, err := exec.Command(program, "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	words := []string{"-np", "8"}
	if strings.Contains(string(version), "Open MPI") {
		words = append(words, "--oversubscribe", "--allow-run-as-root")
	}
	words = append(words, strings.Fields(l.bin+"/pretrain_gpt "+jobFlags+" --train-iters 4 --log-jsonl mpi.jsonl")...)
	cmd := exec.Command(program, words...)
	cmd.Dir = l.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("mpirun: %v: %s", err, out)
	}
	l.same(t, "mpi.jsonl")
}
