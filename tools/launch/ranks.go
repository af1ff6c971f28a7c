package launch

import (
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"monotron/internal/exitcode"
	"monotron/internal/system"
	"monotron/mpu/bootstrap/launchenv"
	"monotron/mpu/comm/failure"
	"monotron/tools/internal/command"
)

// attemptRun is the ranks of this host, from their start to the end of the last.
type attemptRun struct {
	*options
	environment []string
	console     *console
	gpus        []string // of each rank; none: as it comes
	stopping    bool     // to stop: by a signal, or since the log is lost
	reportedAt  time.Time

	ranks    []*process
	failures []ended
	limit    <-chan time.Time // for ranks to end by themselves
	checked  time.Time        // for ranks that are stopped
}

// ended is one rank's end.
type ended struct {
	rank   int // of the world
	pid    int
	err    error // of starting it
	state  *os.ProcessState
	said   *failure.Verdict // its last words; nil: none
	killed bool             // by us
}

// process is a rank that has been started.
type process struct {
	rank    int
	cmd     *exec.Cmd
	gone    bool
	killed  bool
	stopped time.Time // since when it is seen stopped; zero: it is not
}

// run starts the ranks and gives the failure that came first; nil: all are done.
func (a *attemptRun) run(signals <-chan os.Signal) error {
	outOfMemory := killsForMemory("/")
	ends := make(chan ended)
	a.startAll(ends)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	full := a.console.full
	for left := a.local; left > 0; {
		select {
		case e := <-ends:
			left--
			a.over(&e)
		case <-a.limit:
			a.kill(a.ranks, syscall.SIGKILL)
		case <-full:
			full = nil
			a.kill(a.ranks, syscall.SIGTERM)
		case now := <-tick.C:
			a.findStopped(now)
		case s := <-signals:
			a.signalled(s)
		}
	}
	if err := a.console.err(); err != nil { // whatever came after it
		a.stopping = true
		return err
	}
	if len(a.failures) == 0 {
		return nil
	}
	return a.verdict(a.failures, outOfMemory)
}

func (a *attemptRun) startAll(ends chan<- ended) {
	started := make(chan *process)
	for local := range a.local {
		go a.start(local, started, ends)
	}
	for range a.local {
		if p := <-started; p != nil {
			a.ranks = append(a.ranks, p)
		}
	}
	slices.SortFunc(a.ranks, func(a, b *process) int { return a.rank - b.rank })
}

// over notes a rank's end; after a failure the others have a while to end by themselves.
func (a *attemptRun) over(e *ended) {
	for _, p := range a.ranks {
		if p.rank == e.rank {
			p.gone, e.killed = true, p.killed && e.signal() == syscall.SIGKILL // else it had ended by itself before
		}
	}
	if e.err == nil && e.state.Success() {
		return
	}
	a.failures = append(a.failures, *e)
	a.endSilent(e.said)
	if a.limit == nil && (e.err != nil || e.code() != exitcode.Again) {
		a.limit = time.After(a.grace)
	}
}

// signalled has the ranks save and end; the second signal ends them at once.
func (a *attemptRun) signalled(s os.Signal) {
	if a.stopping && (s == syscall.SIGPIPE || time.Since(a.reportedAt) < time.Second) {
		return // the same one, passed on to us, or one more line
	}
	if a.stopping {
		a.kill(a.ranks, syscall.SIGKILL)
		return
	}
	a.stopping, a.reportedAt = true, time.Now()
	a.console.note(ending(s))
	if s == syscall.SIGPIPE {
		launchenv.SayClosed(a.folder)
	}
	a.kill(a.ranks, syscall.SIGTERM)
}

// endSilent ends at once a rank that has been judged silent, by one that has ended or by
// rank 0: it does not end by itself, and the others have waited for it long enough.
func (a *attemptRun) endSilent(said *failure.Verdict) {
	if said == nil || said.Kind != failure.Silence {
		var err error
		if said, err = failure.Read(a.folder); err != nil || said.Kind != failure.Silence {
			return // nothing is known, here or yet
		}
	}
	for _, p := range a.ranks {
		if p.rank == said.Rank {
			a.kill([]*process{p}, syscall.SIGKILL)
		}
	}
}

// kill sends a signal to the ranks that live, and to what they have started.
func (a *attemptRun) kill(ranks []*process, s syscall.Signal) {
	for _, p := range ranks {
		if !p.gone {
			p.killed = p.killed || s == syscall.SIGKILL
			_ = system.SignalGroup(p.cmd.Process.Pid, s) // it may have ended meanwhile
		}
	}
}

// start runs one rank to its end. Its thread is not used for anything else: the
// kernel ends the rank when the thread that has started it ends.
func (a *attemptRun) start(local int, started chan<- *process, ends chan<- ended) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	rank := a.node*a.local + local
	cmd, err := a.command(local, rank)
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		started <- nil
		ends <- ended{rank: rank, err: err}
		return
	}
	started <- &process{rank: rank, cmd: cmd}
	_ = cmd.Wait()                                           // the state says it
	_ = system.SignalGroup(cmd.Process.Pid, syscall.SIGKILL) // what it may have left behind
	said := cmd.Stderr.(*lines).close()
	cmd.Stdout.(*lines).close()
	ends <- ended{rank: rank, pid: cmd.Process.Pid, state: cmd.ProcessState, said: said}
}

// tied puts a rank in a process group of its own, which ends with the launcher.
func tied() *syscall.SysProcAttr {
	return system.OwnGroup(command.Tied())
}

func (a *attemptRun) command(local, rank int) (*exec.Cmd, error) {
	words := a.words
	if !strings.Contains(words[0], "/") { // a command of our own
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		words = append([]string{self}, words...)
	}
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = append(append([]string{}, a.environment...), "RANK="+strconv.Itoa(rank), "LOCAL_RANK="+strconv.Itoa(local))
	if local < len(a.gpus) {
		cmd.Env = append(cmd.Env, "CUDA_VISIBLE_DEVICES="+a.gpus[local])
	}
	if a.segments != nil {
		cmd.Env = append(cmd.Env, launchenv.Segments+"=3") // the first number after the three standard streams'
		cmd.ExtraFiles = a.segments[local]
	}
	cmd.Stdout, cmd.Stderr = a.console.of(rank, false), a.console.of(rank, true)
	cmd.WaitDelay = 2 * time.Second
	cmd.SysProcAttr = tied()
	return cmd, nil
}
