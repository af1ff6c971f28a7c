package launchenv

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"monotron/internal/exitcode"
)

func environ(text string) func(string) string {
	values := map[string]string{}
	for _, word := range strings.Fields(text) {
		name, value, _ := strings.Cut(word, "=")
		values[name] = value
	}
	return func(name string) string { return values[name] }
}

// Claim (docs/launch.md): every launcher's variables give the process its rank and an
// address to meet.
func TestFind(t *testing.T) {
	for _, test := range []struct{ name, environment, want string }{
		{"none", "PATH=/bin", ""},
		{"own", "MONOTRON_LAUNCHED=1 RANK=3 WORLD_SIZE=8 LOCAL_RANK=3 LOCAL_WORLD_SIZE=8 MASTER_ADDR=127.0.0.1 MASTER_PORT=1234",
			"rank 3 of 8 (monotron launch; 3 of 8 on this host), rendezvous at 127.0.0.1:1234"},
		{"torchrun", "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 GROUP_RANK=1 MASTER_ADDR=a MASTER_PORT=29500 TORCHELASTIC_USE_AGENT_STORE=True TORCHELASTIC_RUN_ID=x",
			"rank 5 of 8 (torchrun; 1 of 4 on this host), rendezvous at a:29501"},
		{"torch.distributed without an agent's store", "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=a MASTER_PORT=29500 TORCHELASTIC_USE_AGENT_STORE=False",
			"rank 0 of 2 (torchrun; 0 of 1 on this host), rendezvous at a:29500"},
		{"Open MPI, one host", "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 MASTER_PORT=77",
			"rank 1 of 2 (Open MPI's mpirun; 1 of 2 on this host), rendezvous at 127.0.0.1:77"},
		{"Open MPI, two hosts inside Slurm", "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 SLURM_JOB_NODELIST=n[07-08] SLURM_PROCID=0 SLURM_NTASKS=2 MASTER_PORT=77",
			"rank 3 of 4 (Open MPI's mpirun; 1 of 2 on this host), rendezvous at n07:77"},
		{"Hydra", "PMI_RANK=1 PMI_SIZE=4 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2 MASTER_ADDR=h MASTER_PORT=9", "rank 1 of 4 (mpiexec (PMI); 1 of 2 on this host), rendezvous at h:9"},
		{"PALS", "PALS_RANKID=6 PMI_RANK=6 PMI_SIZE=8 PALS_LOCAL_RANKID=2 PALS_LOCAL_SIZE=4 PBS_JOBID=1.pbs MASTER_ADDR=h MASTER_PORT=9",
			"rank 6 of 8 (PALS's mpiexec; 2 of 4 on this host), rendezvous at h:9"},
		{"srun", "SLURM_PROCID=5 SLURM_NTASKS=8 SLURM_LOCALID=1 SLURM_NODEID=1 SLURM_STEP_ID=0 SLURM_STEP_TASKS_PER_NODE=4(x2) SLURM_JOB_ID=1 SLURM_JOB_NODELIST=gpu[003-008,011],login1 MASTER_PORT=5",
			"rank 5 of 8 (srun; 1 of 4 on this host), rendezvous at gpu003:5"},
		{"srun, uneven", "SLURM_PROCID=5 SLURM_NTASKS=7 SLURM_LOCALID=0 SLURM_NODEID=2 SLURM_STEP_ID=0 SLURM_STEP_TASKS_PER_NODE=2(x2),3 SLURM_JOB_NODELIST=a,b,c MASTER_PORT=5",
			"rank 5 of 7 (srun; 0 of 3 on this host), rendezvous at a:5"},
		{"only one rank", "RANK=0 WORLD_SIZE=1", "rank 0 of 1 (torchrun; 0 of 1 on this host), rendezvous at 127.0.0.1:0"},
		{"only one rank, whatever MASTER_PORT is", "RANK=0 WORLD_SIZE=1 MASTER_ADDR=elsewhere MASTER_PORT=x", "rank 0 of 1 (torchrun; 0 of 1 on this host), rendezvous at 127.0.0.1:0"},
		{"a batch script without srun", "SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_JOB_ID=1", ""},
		{"a shell of an allocation", "SLURM_NTASKS=8 SLURM_JOB_ID=1", ""},
		{"sizes of a single rank", "WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1", ""},
	} {
		p, err := Find(environ(test.environment))
		got := ""
		if p != nil {
			got = p.String()
		}
		if err != nil || got != test.want {
			t.Errorf("%s: %q, %v\nwant %q", test.name, got, err, test.want)
		}
	}
}

// Claim (docs/launch.md): a process that Slurm's variables call one of several, though no
// step of srun's, is not taken for the only rank in silence; where all is said it is.
func TestUnsure(t *testing.T) {
	for environment, want := range map[string]string{
		"SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_JOB_ID=1":                 "SLURM_STEP_ID",
		"SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_JOB_ID=1":                 "",
		"SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_STEP_ID=0 SLURM_JOB_ID=1": "",
		"PATH=/bin":                             "",
		"PET_NNODES=2 PET_NODE_RANK=1":          "PET_NNODES=2",
		"PET_NNODES=1 PET_NODE_RANK=0":          "",
		"SKYPILOT_NUM_NODES=3":                  "",
		"DSTACK_NODES_NUM=3 DSTACK_NODE_RANK=0": "DSTACK_NODES_NUM=3",
	} {
		err := Unsure(environ(environment))
		if want == "" && err != nil || want != "" && (exitcode.CodeOf(err) != exitcode.Usage || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", environment, err, want)
		}
	}
}

// Claim (docs/launch.md): ranks that MPICH's mpiexec starts on one host need no MASTER_PORT: their
// common ancestor names the job.
func TestAncestor(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is no /proc here")
	}
	own, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	program := strings.TrimSpace(string(own))
	if got := ancestor(os.Getpid(), program); got != fmt.Sprint(program, " ", os.Getpid()) {
		t.Errorf("this process is %q", got)
	}
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if got := ancestor(cmd.Process.Pid, program); got != fmt.Sprint(program, " ", os.Getpid()) {
		t.Errorf("the parent of %d is %q, not process %d", cmd.Process.Pid, got, os.Getpid())
	}
	if got := ancestor(cmd.Process.Pid, "none of this name"); got != "" {
		t.Errorf("%q", got)
	}
	_ = cmd.Process.Kill() // its end is not waited for longer
	_ = cmd.Wait()
}

// Claim (docs/launch.md): IPv6 addresses may have the brackets of URLs.
func TestBracketedAddress(t *testing.T) {
	p, err := Find(environ("RANK=1 WORLD_SIZE=2 MASTER_ADDR=[::1] MASTER_PORT=29500"))
	if err != nil || p.Addr != "[::1]:29500" {
		t.Errorf("%v, %v", p, err)
	}
}

// Claim: a job's name alone gives all its ranks the same port, and other jobs
// other ones.
func TestPortOfJob(t *testing.T) {
	port := func(job, rank string) string {
		p, err := Find(environ("SLURM_NTASKS=2 SLURM_STEP_ID=0 SLURM_STEP_TASKS_PER_NODE=2 SLURM_PROCID=" + rank + " SLURM_JOB_ID=" + job))
		if err != nil {
			t.Fatal(err)
		}
		return p.Addr
	}
	if port("7", "0") != port("7", "1") || port("7", "0") == port("8", "0") {
		t.Errorf("%s %s %s", port("7", "0"), port("7", "1"), port("8", "0"))
	}
}

// Claim: variables that cannot be are one error that names them.
func TestFindProblems(t *testing.T) {
	for _, test := range []struct{ environment, want string }{
		{"RANK=x WORLD_SIZE=2", `RANK="x"`},
		{"RANK=2 WORLD_SIZE=2 MASTER_PORT=1", "rank 2 in a run of 2 ranks"},
		{"RANK=-1 WORLD_SIZE=2 MASTER_PORT=1", `RANK="-1"`},
		{"RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=4 MASTER_PORT=1", "this host 4 ranks in a run of 2 ranks"},
		{"RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2", "export MASTER_PORT"},
		{"RANK=0", "WORLD_SIZE is not set"},
		{"WORLD_SIZE=2", "WORLD_SIZE=2 in the environment was set by torchrun and means several ranks, but RANK is not set"},
		{"WORLD_SIZE=2 LOCAL_RANK=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29600", "RANK is not set"},
		{"LOCAL_RANK=1", "LOCAL_RANK=1"},
		{"OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK is not set"},
		{"PMI_SIZE=4", "is not set"},
		{"MPI_LOCALNRANKS=2", "PMI_RANK is not set"},
		{"SLURM_PROCID=3 SLURM_NTASKS=8 SLURM_JOB_ID=1", "SLURM_STEP_ID is not set"},
		{"SLURM_PROCID=3 SLURM_STEP_ID=0 SLURM_JOB_ID=1", "SLURM_NTASKS is not set"},
		{"PALS_RANKID=0 PBS_JOBID=1.pbs", "PMI_SIZE or PALS_SIZE is not set"},
		{"PALS_RANKID=0 PMI_SIZE=2 PALS_LOCAL_SIZE=2", "PALS_APID, PBS_JOBID"},
		{"PMI_RANK=1 MASTER_PORT=1", "PMI_SIZE is not set"},
		{"RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=1 MASTER_PORT=1", "export MASTER_ADDR"},
		{"RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_PORT=99999", `MASTER_PORT="99999"`},
	} {
		if _, err := Find(environ(test.environment)); exitcode.CodeOf(err) != exitcode.Usage || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.environment, err, test.want)
		}
	}
}

// Claim: without MONOTRON_SECRET processes of one user agree on a secret, which
// only that user can read; one that others can read is refused.
func TestSecret(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	p := &Env{Job: "j"}
	a, err := p.Secret(environ(""))
	b, err2 := p.Secret(environ(""))
	if err != nil || err2 != nil || len(a) < 64 || string(a) != string(b) {
		t.Errorf("%d bytes, %v, %v", len(a), err, err2)
	}
	other := &Env{Job: "k"}
	if c, _ := other.Secret(environ("")); string(c) == string(a) {
		t.Error("two jobs with the same secret")
	}
	folder, _ := os.UserCacheDir()
	if err := os.Chmod(filepath.Join(folder, "monotron", "secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Secret(environ("")); err == nil || !strings.Contains(err.Error(), "is readable by other users") {
		t.Error(err)
	}
	if s, err := p.Secret(environ("MONOTRON_SECRET=0123456789abcdef")); err != nil || string(s) != "0123456789abcdef" {
		t.Errorf("%s %v", s, err)
	}
	if _, err := p.Secret(environ("MONOTRON_SECRET=short")); err == nil {
		t.Error("a short secret was taken")
	}
}

// Claim: a rank names what has stopped it: the signal, or that nobody reads the launcher's output.
func TestStopName(t *testing.T) {
	folder := t.TempDir()
	launched, other := environ(Own+"=1 "+RunFolder+"="+folder), environ(RunFolder+"="+folder)
	names := func() string {
		return StopName(syscall.SIGTERM, launched) + ", " + StopName(syscall.SIGINT, launched) + ", " + StopName(syscall.SIGTERM, other)
	}
	if got := names(); got != "SIGTERM, SIGINT, SIGTERM" {
		t.Error(got)
	}
	SayClosed(folder)
	if got := names(); got != "closed standard output, SIGINT, SIGTERM" {
		t.Error(got)
	}
	Unsay(folder)
	if got := names(); got != "SIGTERM, SIGINT, SIGTERM" {
		t.Error(got)
	}
}
