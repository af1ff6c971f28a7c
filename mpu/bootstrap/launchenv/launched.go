package launchenv

import (
	"fmt"
	"hash/fnv"
	"os"
	"strconv"
	"strings"

	"monotron/internal/exitcode"
	"monotron/internal/logging"
	"monotron/mpu/bootstrap/rendezvous"
	"monotron/mpu/comm/failure"
)

// Env is this process among those of a run.
type Env struct {
	Launcher   string // what set the variables
	Rank, Size int
	Local      int    // number of this rank among those of its host
	LocalSize  int    // ranks on this host
	Addr       string // host:port at which ranks meet
	Job        string // names the job, alike on all its ranks; "" where the launcher does not say
}

// Hosts reports whether the run spans several hosts.
func (p *Env) Hosts() bool { return p.LocalSize < p.Size }

// names are the variables of one launcher. The first that is set counts.
type names struct {
	launcher         string
	rank, size       []string
	local, localSize []string
	job              []string
	starter          string // the process that starts all ranks of a host, where the launcher does not name the job
	takesPort        string // where this is True the launcher itself listens at MASTER_PORT
}

// launchers in the order in which they are tried: what a person or torchrun sets
// before what the system below may set as well; Slurm last, since its variables are
// also those of an sbatch script around another launcher.
var launchers = []names{
	{launcher: "torchrun", rank: []string{"RANK"}, size: []string{"WORLD_SIZE"}, local: []string{"LOCAL_RANK"}, localSize: []string{"LOCAL_WORLD_SIZE"},
		job: []string{"TORCHELASTIC_RUN_ID"}, takesPort: "TORCHELASTIC_USE_AGENT_STORE"},
	{launcher: "Open MPI's mpirun", rank: []string{"OMPI_COMM_WORLD_RANK"}, size: []string{"OMPI_COMM_WORLD_SIZE"}, local: []string{"OMPI_COMM_WORLD_LOCAL_RANK"},
		localSize: []string{"OMPI_COMM_WORLD_LOCAL_SIZE"}, job: []string{"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}},
	{launcher: "PALS's mpiexec", rank: []string{"PALS_RANKID"}, size: []string{"PMI_SIZE", "PALS_SIZE"}, local: []string{"PALS_LOCAL_RANKID", "PMI_LOCAL_RANK"},
		localSize: []string{"PALS_LOCAL_SIZE", "PMI_LOCAL_SIZE"}, job: []string{"PALS_APID", "PBS_JOBID"}},
	{launcher: "mpiexec (PMI)", rank: []string{"PMI_RANK"}, size: []string{"PMI_SIZE"}, local: []string{"MPI_LOCALRANKID", "PMI_LOCAL_RANK"},
		localSize: []string{"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"}, job: []string{"PBS_JOBID", "SLURM_JOB_ID", "HYDRA_JOBID"}, starter: "hydra_pmi_proxy"},
	{launcher: "srun", rank: []string{"SLURM_PROCID"}, size: []string{"SLURM_NTASKS"}, local: []string{"SLURM_LOCALID"},
		localSize: []string{"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}, job: []string{"SLURM_JOB_ID"}},
}

// Own is set by monotron launch in addition to torchrun's names.
const Own = "MONOTRON_LAUNCHED"

// Launcher is the variable in which monotron launch gives its ranks its process's number.
const Launcher = "MONOTRON_LAUNCHER"

// Farewell prints why this process ends, and reports it to monotron launch where that has
// started it.
func Farewell(err error) {
	if os.Getenv(Own) != "" {
		failure.Tell(os.Stderr, err)
	}
	logging.Stderr().Failure(err)
}

// RunFolder is the variable that names the folder for flight records and the verdict
// where --run-folder does not.
const RunFolder = "MONOTRON_RUN_FOLDER"

// Segments is the variable in which monotron launch gives a rank the number of the first file of
// memory for memory checkpoints that it holds for it; the others follow.
const Segments = "MONOTRON_MEMORY_SEGMENTS"

// Restarts is the variable that says how often the run was restarted before.
const Restarts = "TORCHELASTIC_RESTART_COUNT"

// FewerRanks is set by monotron launch where it continues with fewer ranks than it began with.
const FewerRanks = "MONOTRON_FEWER_RANKS"

// Find reads the variables; nil where no launcher has set any. Errors are
// exitcode.Usage and name the variable, also one that is missing: a rank that took itself for
// the only one would train by itself, in parallel to all others.
func Find(get func(string) string) (*Env, error) {
	var missing error
	for _, l := range launchers {
		switch lack := l.lacks(get); {
		case lack == "":
			return l.read(get)
		case lack == none && missing == nil:
			missing = l.severalWithoutRank(get)
		case lack != none && missing == nil:
			missing = exitcode.Errorf(exitcode.Usage, "%s=%s in the environment was set by %s, but %s is not set, so this process cannot determine the ranks of the run; "+
				"export %[4]s, or unset %[1]s if there is only one rank", l.rank[0], first(get, l.rank), l.launcher, lack)
		}
	}
	return nil, missing
}

// severalWithoutRank is the error where a launcher's variables name several ranks, but not which of them
// this process is. Slurm's say so in every shell of an allocation, where no ranks are.
func (l *names) severalWithoutRank(get func(string) string) error {
	if l.launcher == "srun" {
		return nil
	}
	for _, one := range []struct {
		names []string
		alone int // the most that a single rank has
	}{{l.size, 1}, {l.localSize, 1}, {l.local, 0}} {
		name, text := which(get, one.names)
		if n, err := strconv.Atoi(text); err == nil && n > one.alone {
			return exitcode.Errorf(exitcode.Usage, "%s=%s in the environment was set by %s and means several ranks, but %s is not set, so this process cannot determine which rank it is; "+
				"export %[4]s, or unset %[1]s if all ranks are in this process", name, text, l.launcher, strings.Join(l.rank, " or "))
		}
	}
	return nil
}

// none: a launcher has set nothing.
const none = "all"

// lacks names a variable that a launcher must have set and has not; "": it has set all,
// none: it has set nothing that says there are several ranks. Slurm sets its variables in
// a batch script, too, where the script is rank 0 of whatever srun may start in it: that
// is not a rank of a run.
func (l *names) lacks(get func(string) string) string {
	rank, size := first(get, l.rank), first(get, l.size)
	switch {
	case rank == "":
		return none
	case l.launcher == "srun" && get("SLURM_STEP_ID") == "" && rank == "0":
		return none
	case l.launcher == "srun" && get("SLURM_STEP_ID") == "":
		return "SLURM_STEP_ID"
	case size == "":
		return strings.Join(l.size, " or ")
	}
	return ""
}

// Unsure is why it may be wrong that this process is the only rank where Find has found
// none: nil where nothing speaks against it.
func Unsure(get func(string) string) error {
	for _, s := range schedulers {
		if hosts := get(s.hosts); hosts != "" && hosts != "1" && get(s.number) != "" {
			return exitcode.Errorf(exitcode.Usage, "%s=%s: %s started one process on each of several hosts, but this pretrain_gpt has only one rank; start it with monotron launch -- pretrain_gpt, "+
				"or request all ranks in this process with --world-size", s.hosts, hosts, s.name)
		}
	}
	if n, err := strconv.Atoi(get("SLURM_NTASKS")); err == nil && n > 1 && get("SLURM_PROCID") == "0" && get("SLURM_STEP_ID") == "" {
		return exitcode.Errorf(exitcode.Usage, "SLURM_NTASKS=%d, but SLURM_STEP_ID is not set: either the batch script itself started this process (start the ranks with srun or monotron launch, or request all of them in this process with --world-size), "+
			"or srun does not pass its variables to its tasks", n)
	}
	return nil
}

func (l *names) read(get func(string) string) (*Env, error) {
	p := &Env{Launcher: l.launcher, Job: first(get, l.job)}
	if get(Own) != "" {
		p.Launcher = "monotron launch"
	}
	// number is the first of the names that is set; of several wrong ones the first is reported.
	var err error
	number := func(names []string, otherwise int) int {
		name, text := which(get, names)
		if text == "" {
			return otherwise
		}
		if l.launcher == "srun" && strings.Contains(name, "TASKS_PER_NODE") {
			text = tasksHere(text, get("SLURM_NODEID"))
		}
		n, bad := strconv.Atoi(text)
		if (bad != nil || n < 0) && err == nil {
			err = exitcode.Errorf(exitcode.Usage, "%s=%q in the environment is not a number of ranks", name, text)
		}
		return n
	}
	// Rank and size of the run and of this host.
	p.Rank, p.Size = number(l.rank, 0), number(l.size, 1)
	p.Local = number(l.local, 0)
	p.LocalSize = number(l.localSize, 1)
	switch {
	case err != nil:
		return nil, err
	case p.Size < 1 || p.Rank >= p.Size:
		return nil, exitcode.Errorf(exitcode.Usage, "%s gives this process rank %d in a run of %d ranks, but ranks are numbered from 0; correct %s and %s in the environment", p.Launcher, p.Rank, p.Size, l.rank[0], l.size[0])
	case p.LocalSize < 1 || p.LocalSize > p.Size:
		return nil, exitcode.Errorf(exitcode.Usage, "%s gives this host %d ranks in a run of %d ranks; correct %s in the environment", p.Launcher, p.LocalSize, p.Size, l.localSize[0])
	}
	// Several runs of one launcher on a host need different rendezvous: the starter's process is part of the name.
	if p.Job == "" && l.starter != "" && !p.Hosts() {
		p.Job = ancestor(os.Getpid(), l.starter)
	}
	if p.Size == 1 {
		p.Addr = "127.0.0.1:0" // nobody else is to find it
		return p, nil
	}
	p.Addr, err = l.meeting(get, p)
	return p, err
}

// meeting is where the ranks meet: MASTER_ADDR and MASTER_PORT, else what follows
// from the launcher's variables.
func (l *names) meeting(get func(string) string, p *Env) (string, error) {
	host, port := get("MASTER_ADDR"), get("MASTER_PORT")
	switch {
	case host != "":
	case !p.Hosts():
		host = "127.0.0.1"
	case get("SLURM_JOB_NODELIST") != "":
		host = firstNode(get("SLURM_JOB_NODELIST"))
	default:
		return "", exitcode.Errorf(exitcode.Usage, "%s started ranks on several hosts without an address for their rendezvous; export MASTER_ADDR (the host of rank 0) and MASTER_PORT (a free port of that host)", p.Launcher)
	}
	if port == "" {
		if p.Job == "" {
			return "", exitcode.Errorf(exitcode.Usage, "%s does not name its job (none of these variables is set: %s), so ranks cannot agree on a port; export MASTER_PORT (a free port on the host of rank 0)",
				p.Launcher, strings.Join(l.job, ", "))
		}
		return rendezvous.Address(host, portOf(p.Job+"."+get("SLURM_STEP_ID"))), nil
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 1 || n > 65534 {
		return "", exitcode.Errorf(exitcode.Usage, "MASTER_PORT=%q in the environment is not a port from 1 to 65534", port)
	}
	if l.takesPort != "" && get(l.takesPort) == "True" {
		n++
	}
	return rendezvous.Address(host, n), nil
}

// ancestor names the nearest process above pid that runs a program, by its number, which is
// the same for all ranks that it has started; "" where there is none, and where there is no
// /proc.
func ancestor(pid int, program string) string {
	for pid > 1 {
		text, err := exitcode.ReadFile(fmt.Sprintf("/proc/%d/stat", pid), 4<<10)
		if err != nil {
			return ""
		}
		// pid (program) state parent ...; the program's name may have parentheses.
		head, rest, found := cutLast(string(text), ") ")
		_, name, _ := strings.Cut(head, " (")
		fields := strings.Fields(rest)
		if !found || len(fields) < 2 {
			return ""
		}
		if name == program {
			return program + " " + strconv.Itoa(pid)
		}
		if pid, err = strconv.Atoi(fields[1]); err != nil {
			return ""
		}
	}
	return ""
}

func cutLast(text, separator string) (before, after string, found bool) {
	at := strings.LastIndex(text, separator)
	if at < 0 {
		return text, "", false
	}
	return text[:at], text[at+len(separator):], true
}

// portOf is a port that follows from a job's name.
func portOf(job string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(job)) // never fails
	return rendezvous.PortOf(h.Sum32())
}

func which(get func(string) string, names []string) (name, text string) {
	for _, name := range names {
		if text := get(name); text != "" {
			return name, text
		}
	}
	return "", ""
}

func first(get func(string) string, names []string) string {
	_, text := which(get, names)
	return text
}

// tasksHere reads Slurm's "4(x2),3" for the node with a number.
func tasksHere(list, node string) string {
	at, err := strconv.Atoi(node)
	if err != nil {
		at = 0
	}
	for _, entry := range strings.Split(list, ",") {
		tasks, times, repeated := strings.Cut(strings.TrimSuffix(entry, ")"), "(x")
		n := 1
		if repeated {
			if n, err = strconv.Atoi(times); err != nil {
				return list
			}
		}
		if at < n {
			return tasks
		}
		at -= n
	}
	return list
}

// firstNode is the first of Slurm's list, such as "gpu[003-008,011],login1".
func firstNode(list string) string {
	head, rest, found := strings.Cut(list, "[")
	if comma := strings.IndexByte(list, ','); !found || (comma >= 0 && comma < len(head)) {
		host, _, _ := strings.Cut(list, ",")
		return host
	}
	inside, after, _ := strings.Cut(rest, "]")
	suffix, _, _ := strings.Cut(after, ",")
	number := strings.FieldsFunc(inside, func(r rune) bool { return r == '-' || r == ',' })
	if len(number) == 0 {
		return head + suffix
	}
	return head + number[0] + suffix
}

// String says all of it, for messages.
func (p *Env) String() string {
	return fmt.Sprintf("rank %d of %d (%s; %d of %d on this host), rendezvous at %s", p.Rank, p.Size, p.Launcher, p.Local, p.LocalSize, p.Addr)
}

// Secret is what the ranks of a run prove to each other: MONOTRON_SECRET, else,
// where all are on one host, one that follows from a file that only this user can
// read. It is not in any command line.
func (p *Env) Secret(get func(string) string) ([]byte, error) {
	if text := get("MONOTRON_SECRET"); text != "" {
		if len(text) < 16 {
			return nil, exitcode.Errorf(exitcode.Usage, "MONOTRON_SECRET is shorter than 16 characters; make one with: openssl rand -hex 32")
		}
		return []byte(text), nil
	}
	folder, err := os.UserCacheDir()
	if err == nil {
		var secret []byte
		if secret, err = userSecret(folder); err == nil {
			return append(secret, p.Job...), nil
		}
	}
	return nil, exitcode.Errorf(exitcode.Usage, "the ranks have no common secret (%w); if the launcher passes the environment to the ranks, set a secret: export MONOTRON_SECRET=$(openssl rand -hex 32)", err)
}
