package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"monotron/internal/exitcode"
	"monotron/mpu/bootstrap/launchenv"
	"monotron/mpu/bootstrap/rendezvous"
)

// With spare hosts or memory checkpoints the launchers on the hosts of a file stay when ranks fail: they hold the
// memory, meet before every start and decide who runs which ranks, as under --nnodes (gather.go). This one
// starts them, passes signals and output on, and starts that of a lost host again when the host answers.

// stays reports whether the launchers on the hosts stay between starts.
func (o *options) stays() bool {
	return o.spares > 0 || o.line.ours && o.line.config.Checkpoint.MemoryInterval > 0
}

// stayingArgs are the flags of the launchers that stay.
func (f *fleet) stayingArgs() []string {
	return []string{"--spares", strconv.Itoa(f.spares), "--auto-restart", "--max-restarts", strconv.Itoa(f.restarts), "--min-nnodes", strconv.Itoa(min(f.leastNodes, f.wanted)),
		"--host-wait-seconds", strconv.Itoa(int(f.hostWait / time.Second))}
}

// staying is the fleet's launchers, while they run.
type staying struct {
	*fleet
	console  *console
	notes    io.Writer
	port     int
	secret   string
	ends     chan *remote
	back     chan int  // hosts that answer again
	all      []*remote // by host; the latest launcher of each
	calm     time.Time // since when none has run; zero: one does
	ended    *remote   // the last one that has ended otherwise than by the loss of its host
	failed   []*remote // those that have ended so with an error
	done     bool      // one of them says that the run is done
	stopping bool      // a signal has asked for it
}

// runStaying is run where the launchers stay.
func (f *fleet) runStaying(signals <-chan os.Signal, c *console, notes io.Writer) error {
	// The first start needs all hosts but spare ones; then a lost host can be waited for.
	if err := stoppable(signals, f.reachAll); err != nil {
		return err
	}
	s := &staying{fleet: f, console: c, notes: notes, port: f.port, secret: launchenv.NewSecret(), ends: make(chan *remote), back: make(chan int, len(f.hosts))}
	if s.port == 0 {
		s.port = rendezvous.AnyPort()
	}
	for node := range f.hosts {
		s.all = append(s.all, f.start(node, s.port, s.secret, c, s.ends))
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	// Until all launchers have ended: what they, the hosts and the user say.
	var limit <-chan time.Time
	full := c.full
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for s.live() || !s.over() {
		select {
		case <-full: // the output cannot be written
			full = nil
			tell(s.all, tellTerm)
		case r := <-s.ends:
			s.end(ctx, r)
		case node := <-s.back:
			s.bringBack(node)
		case <-tick.C:
			if limit == nil && s.onlyReturned() {
				limit = time.After(s.patience())
			}
		case <-limit:
			s.finish()
			limit = time.After(f.grace + 5*time.Second)
		case sig := <-signals:
			s.signalled(sig)
		}
	}
	if err := c.err(); err != nil {
		return err
	}
	return s.result()
}

// end takes the end of a launcher. Where its host is lost it is started again when that answers.
func (s *staying) end(ctx context.Context, r *remote) {
	r.gone = true
	if !s.live() {
		s.calm = time.Now()
	}
	switch lost := r.err != nil && codeOf(r.err) == sshFailed; {
	case r.asked:
	case !lost:
		s.done = s.done || r.err == nil
		if s.ended == nil || !r.again || r.err == nil {
			s.ended = r
		}
		if r.err != nil {
			s.failed = append(s.failed, r)
		}
	case !s.stopping && !s.done && (s.live() || s.ended == nil):
		fmt.Fprintf(s.notes, "launch: host %s is lost: ssh has failed; its launcher is started again when it answers\n", r.host.name)
		go func() { s.back <- s.untilAnswers(ctx, r.node) }()
	}
}

// bringBack starts the launcher on a host that answers again.
func (s *staying) bringBack(node int) {
	if node < 0 || s.done || s.stopping || !s.live() && s.ended != nil {
		return
	}
	fmt.Fprintf(s.notes, "launch: host %s answers again\n", s.hosts[node].name)
	s.all[node] = s.start(node, s.port, s.secret, s.console, s.ends)
	s.all[node].again = true
}

// signalled passes a signal on: the first asks the ranks to save, the second ends them.
func (s *staying) signalled(sig os.Signal) {
	switch {
	case s.stopping && sig == syscall.SIGPIPE: // one more line
	case s.stopping:
		tell(s.all, "")
	default:
		s.stopping = true
		s.console.note(ending(sig))
		tell(s.all, tellTerm)
	}
}

// live reports whether a launcher runs.
func (s *staying) live() bool {
	return slices.ContainsFunc(s.all, func(r *remote) bool { return !r.gone })
}

// onlyReturned reports whether the run may be over and what is left are launchers that were started again: they may be
// waiting for others that do not come any more.
func (s *staying) onlyReturned() bool {
	return s.ended != nil && !slices.ContainsFunc(s.all, func(r *remote) bool { return !r.gone && !r.again })
}

// patience is how long those may still take: they end with the run, or as long as the others would have waited for them.
func (s *staying) patience() time.Duration {
	if s.done {
		return s.grace + 5*time.Second
	}
	return s.hostWait + settling
}

// finish asks the launchers that are left to end; the second time it ends ssh.
func (s *staying) finish() {
	if slices.ContainsFunc(s.all, func(r *remote) bool { return !r.gone && r.asked }) {
		abandon(s.all)
	}
	tell(s.all, "")
}

// over reports, where no launcher runs, whether none will: the run has ended, or all hosts have been lost for
// longer than the run waits for one.
func (s *staying) over() bool {
	return s.ended != nil || s.stopping || time.Since(s.calm) > s.hostWait
}

// result is how the run has ended: as the last launcher that the loss of its host has not ended; of errors the one that
// explains the others.
func (s *staying) result() error {
	switch {
	case s.ended != nil && s.ended.err == nil:
		return nil
	case s.ended != nil:
		return judge(s.failed)
	}
	return judge(s.all)
}

// reachAll checks that ssh reaches all hosts that are to run ranks.
func (f *fleet) reachAll(ctx context.Context) error {
	var all sync.WaitGroup
	errs := make([]error, f.wanted)
	for node := range errs {
		all.Go(func() {
			host := f.hosts[node].name
			if said, reached := f.reach(ctx, host); !reached {
				errs[node] = exitcode.Errorf(exitcode.IO, "host %[1]s: ssh failed: %[2]s. Try: ssh -o BatchMode=yes %[1]s true", host, said)
			}
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		return exitcode.Errorf(exitcode.Again, "stopped before the hosts were reached; run the same command again")
	}
	return errors.Join(errs...)
}

// untilAnswers waits until ssh reaches a host; -1: that is not wanted any more.
func (f *fleet) untilAnswers(ctx context.Context, node int) int {
	for {
		select {
		case <-ctx.Done():
			return -1
		case <-time.After(2 * time.Second):
		}
		if f.answers(ctx, f.hosts[node].name) {
			return node
		}
	}
}

// checkStaying refuses flags with which launchers cannot stay.
func (f *fleet) checkStaying() error {
	switch {
	case !f.restartsAtAll:
		return exitcode.Errorf(exitcode.Usage, "--memory-checkpoint-interval with --hostfile needs --auto-restart, because the launchers on the hosts must keep the memory from one start to the next")
	case len(f.hosts) <= f.spares:
		return exitcode.Errorf(exitcode.Usage, "--hostfile names %d hosts, and --spares %d leaves no host to run ranks; add hosts, or lower --spares", len(f.hosts), f.spares)
	}
	f.wanted = len(f.hosts) - f.spares
	return nil
}
