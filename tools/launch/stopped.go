package launch

import (
	"fmt"
	"syscall"
	"time"

	"monotron/internal/exitcode"
	"monotron/internal/system"
	"monotron/mpu/comm/failure"
)

// A rank that is stopped says nothing, and where rank 0 is stopped, too, or the ranks have
// not met yet, none of them can say so. The launcher sees it; where rank 0 can it is first.
const (
	longestStop = 22 * time.Second
	afterStop   = 5 * time.Second // for the others to end by themselves
)

// findStopped judges ranks that have been stopped for too long.
func (a *attemptRun) findStopped(now time.Time) {
	own := now.Sub(a.checked) > 5*time.Second // this process was stopped itself
	a.checked = now
	var lost []*process
	for _, p := range a.ranks {
		switch {
		case p.gone || p.killed || !stopped(p.cmd.Process.Pid):
			p.stopped = time.Time{}
		case own || p.stopped.IsZero():
			p.stopped = now
		case now.Sub(p.stopped) >= longestStop:
			lost = append(lost, p)
		}
	}
	if len(lost) > 0 {
		a.judgeStopped(lost)
	}
}

// judgeStopped ends stopped ranks, and soon after all others.
func (a *attemptRun) judgeStopped(lost []*process) {
	if _, err := failure.Read(a.folder); err != nil { // nobody has said it yet
		first := lost[0]
		v := &failure.Verdict{Kind: failure.Silence, Rank: first.rank, PID: first.cmd.Process.Pid, Code: exitcode.IO, Time: time.Now()}
		v.Text = fmt.Sprintf("rank %d (process %d) has been stopped for %d s%s; use kill -CONT to continue a process", v.Rank, v.PID, int(longestStop.Seconds()), a.lastSeen(v))
		if n := len(lost); n > 1 {
			v.Text += fmt.Sprintf("; %d more of the %d ranks of this host have been stopped, too", n-1, a.local)
		}
		if err := v.Write(a.folder); err != nil {
			a.console.note(err.Error())
		}
	}
	a.kill(lost, syscall.SIGKILL)
	a.limit = time.After(afterStop)
}

// stopped reports whether a process is, by SIGSTOP or the like.
func stopped(pid int) bool { return system.AnyThread(pid, 'T') }
