package launch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	"monotron/internal/exitcode"
	"monotron/internal/system"
	"monotron/mpu/bootstrap/launchenv"
	"monotron/mpu/bootstrap/rendezvous"
	"monotron/mpu/comm/failure"
)

// fleet is a run on the hosts of a file. On each, ssh starts this program as an
// agent (agent.go); what the agent is to do goes over its standard input, so that
// no argument passes a shell and the secret is in no command line.
type fleet struct {
	*options
	hosts     []remoteHost
	sshConfig string // ssh's own file of settings; "": the usual ones
	self      string // this program, at the same path on all hosts
	addr      string // host of rank 0
	port      int    // 0: another one for each attempt
	lost      bool   // the last attempt has not reached a host, or has lost it
}

// plan is the first line that an agent reads.
type plan struct {
	Args        []string // of the launch that it starts
	Environment []string
	Folder      string
}

// What an agent reads afterwards; the end of its input ends the ranks at once.
const tellTerm = "TERM\n"

// passedOn are the variables, by their beginning, that all hosts get: ours, and what
// NVIDIA's libraries and networks are found and set by.
var passedOn = []string{"MONOTRON_", "NCCL_", "CUDA_", "FI_", "UCX_", "LD_LIBRARY_PATH=", "VIRTUAL_ENV=", "CONDA_PREFIX="}

// onOtherHost reports whether a variable means something on other hosts too: GPUs that are
// named by what they are, and not by their numbers, are those of one host.
func onOtherHost(entry string) bool {
	shown, gpus := strings.CutPrefix(entry, "CUDA_VISIBLE_DEVICES=")
	return !(gpus && strings.ContainsFunc(shown, unicode.IsLetter)) &&
		slices.ContainsFunc(passedOn, func(beginning string) bool { return strings.HasPrefix(entry, beginning) })
}

// run starts the hosts, again after failures where that is asked for and helps.
func (f *fleet) run(out, notes io.Writer) error {
	signals, stop := listen()
	defer stop()
	out, notes = heard{out, signals}, heard{notes, signals}
	if f.stays() {
		return f.runStaying(signals, newConsole(out, notes, "none"), notes)
	}
	tries := f.newTries()
	for {
		stopping, err := f.attempt(signals, newConsole(out, notes, "none"))
		if err == nil || stopping || (!again(err) && !f.lost) {
			return err
		}
		if tries.failed(f.progress(), err); tries.futile > f.restarts {
			return f.givenUp(err, tries)
		}
		f.startAgain(err, tries, notes)
		if f.restartsAtAll && f.lost {
			if err := stoppable(signals, func(ctx context.Context) error {
				return errors.Join(f.withoutLost(ctx, notes), ctx.Err())
			}); errors.Is(err, context.Canceled) {
				return exitcode.Errorf(exitcode.Again, "stopped while waiting for a host; run the same command again")
			} else if err != nil {
				return err
			}
		}
	}
}

// remote is one host at work.
type remote struct {
	host  remoteHost
	node  int
	again bool // it was started after the loss of its host
	cmd   *exec.Cmd
	input io.WriteCloser
	err   error            // of its end; nil: well
	said  *failure.Verdict // by the launcher there
	gone  bool
	asked bool // to end, before it did
}

// attempt starts all hosts and gives the failure that explains the others; stopping: a
// signal asked to stop.
func (f *fleet) attempt(signals <-chan os.Signal, c *console) (stopping bool, err error) {
	port, secret := f.port, launchenv.NewSecret()
	if port == 0 {
		port = rendezvous.AnyPort()
	}
	ends := make(chan *remote)
	f.lost = false
	var all []*remote
	for node := range f.hosts {
		r := f.start(node, port, secret, c, ends)
		all = append(all, r)
	}
	var failures []*remote
	var limit, last <-chan time.Time
	var patience, unwinding time.Duration
	full := c.full
	for left := len(all); left > 0; {
		select {
		case <-full:
			full = nil
			tell(all, tellTerm)
		case r := <-ends:
			left--
			r.gone = true
			if r.err != nil {
				failures = append(failures, r)
				f.lost = f.lost || codeOf(r.err) == sshFailed
			}
			if r.err != nil && limit == nil && codeOf(r.err) != exitcode.Again {
				patience, unwinding = f.patience(r)
				limit = time.After(patience)
			}
		case <-limit:
			tell(all, "")
			last = time.After(unwinding)
		case <-last: // a host that does not answer would hold ssh for its own limit
			f.lost = true
			abandon(all)
		case s := <-signals:
			if stopping && s == syscall.SIGPIPE {
				continue // one more line
			}
			if stopping {
				tell(all, "")
				continue
			}
			stopping = true
			c.note(ending(s))
			tell(all, tellTerm)
		}
	}
	if err := c.err(); err != nil {
		return true, err
	}
	return stopping, judge(failures)
}

// abandon ends ssh to the hosts that have not ended. Their agents end the ranks there when
// they notice, at the latest when the ranks do not hear of rank 0.
func abandon(all []*remote) {
	for _, r := range all {
		if !r.gone && r.cmd.Process != nil {
			_ = system.SignalGroup(r.cmd.Process.Pid, syscall.SIGKILL) // it may have ended meanwhile
		}
	}
}

// patience is how long the other hosts may take to end by themselves, and then when they
// are ordered to.
func (f *fleet) patience(r *remote) (byThemselves, stopping time.Duration) {
	usual := f.grace + 5*time.Second // the launchers there have their own
	switch {
	case codeOf(r.err) == sshFailed: // they may not know of it
		return 3 * time.Second, usual
	case r.said != nil && r.said.Kind == failure.Silence: // that took long; one of them may not answer
		return 2 * time.Second, 3 * time.Second
	}
	return usual, usual
}

// tell sends a word to all that live; "": no more will come.
func tell(all []*remote, word string) {
	for _, r := range all {
		switch {
		case r.gone || r.input == nil:
		case word == "":
			r.asked = true
			r.input.Close() // it may be gone meanwhile
		default:
			_, _ = io.WriteString(r.input, word) // it may be gone meanwhile
		}
	}
}

// start starts one host; its end comes through ends.
func (f *fleet) start(node, port int, secret string, c *console, ends chan<- *remote) *remote {
	r := &remote{host: f.hosts[node], node: node}
	r.cmd = exec.Command("ssh", f.sshWords(r.host.name)...)
	out, errs := c.of(0, false), c.of(0, true)
	r.cmd.Stdout, r.cmd.Stderr = out, errs
	r.cmd.WaitDelay = 2 * time.Second
	r.cmd.SysProcAttr = system.OwnGroup(&syscall.SysProcAttr{}) // Ctrl-C is ours to pass on
	var err error
	if r.input, err = r.cmd.StdinPipe(); err == nil {
		err = r.cmd.Start()
	}
	if err != nil {
		r.err = exitcode.Errorf(exitcode.NoInput, "ssh, which --hostfile needs, cannot be started: %w", err)
		go func() { ends <- r }()
		return r
	}
	go func() {
		text, err := json.Marshal(f.plan(node, port, secret))
		if err == nil {
			_, err = r.input.Write(append(text, '\n'))
		}
		r.err = errors.Join(r.cmd.Wait(), err)
		r.said = errs.close()
		out.close()
		ends <- r
	}()
	return r
}

// sshWords are ssh's arguments. The other end gives the last ones to a shell: they
// are the path of this program, in quotes, and two fixed words.
func (f *fleet) sshWords(host string) []string {
	words := []string{"-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20", "-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3"}
	if f.sshConfig != "" {
		words = append(words, "-F", f.sshConfig)
	}
	return append(words, "--", host, quoted(f.self)+" launch --agent")
}

// quoted is a word as a shell reads it complete.
func quoted(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

func (f *fleet) plan(node, port int, secret string) *plan {
	p := &plan{Args: []string{"launch", "--nproc-per-node", strconv.Itoa(f.local), "--nnodes", strconv.Itoa(len(f.hosts) - f.spares), "--node-rank", strconv.Itoa(node),
		"--master-addr", f.addr, "--master-port", strconv.Itoa(port), "--log-prefix", f.prefix}}
	if f.stays() {
		p.Args = append(p.Args, f.stayingArgs()...)
	}
	if f.folder != "" {
		p.Args = append(p.Args, "--run-folder", f.folder)
	}
	p.Args = append(p.Args, "--")
	p.Args = append(p.Args, f.words...)
	for _, entry := range os.Environ() {
		if onOtherHost(entry) {
			p.Environment = append(p.Environment, entry)
		}
	}
	if os.Getenv("MONOTRON_SECRET") == "" {
		p.Environment = append(p.Environment, "MONOTRON_SECRET="+secret)
	}
	p.Folder, _ = os.Getwd() // "": the home folder
	return p
}

// judge picks the failure that explains the others, of hosts that nobody asked to
// end where there are such: a rank that a signal has ended, else a host that was
// lost, else a rank that names itself, else the first.
func judge(failures []*remote) error {
	if len(failures) == 0 {
		return nil
	}
	if own := slices.DeleteFunc(slices.Clone(failures), func(r *remote) bool { return r.asked }); len(own) > 0 {
		failures = own
	}
	for _, explains := range []func(r *remote) bool{
		func(r *remote) bool { return r.said != nil && r.said.Kind == failure.Death && r.said.Signal > 0 },
		func(r *remote) bool { return codeOf(r.err) == sshFailed },
		func(r *remote) bool { return r.said != nil && r.said.Rank >= 0 && r.said.Kind != failure.Other },
	} {
		if at := slices.IndexFunc(failures, explains); at >= 0 {
			return failures[at].error()
		}
	}
	return failures[0].error()
}

func codeOf(err error) exitcode.Code {
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() > 0 {
		return exitcode.Code(exit.ExitCode())
	}
	return exitcode.CodeOf(err)
}

// sshFailed is ssh's own exit code.
const sshFailed = 255

func (r *remote) error() error {
	code := codeOf(r.err)
	var exit *exec.ExitError
	switch {
	case !errors.As(r.err, &exit) && r.said == nil:
		return exitcode.With(code, fmt.Errorf("host %s: %w", r.host.name, r.err))
	case code == sshFailed:
		return exitcode.Errorf(exitcode.IO, "host %s: ssh failed, or the connection was lost; its output is above. Try: ssh -o BatchMode=yes %s true", r.host.name, r.host.name)
	case r.said != nil:
		return exitcode.With(code, r.said)
	}
	return exitcode.With(code, fmt.Errorf("host %s ended with exit code %d; its output is above (127 means that the program is not at the same path on that host)", r.host.name, code))
}

// master is the address of rank 0's host, as the other hosts reach it.
func master(hosts []remoteHost) string {
	_, host, found := strings.Cut(hosts[0].name, "@")
	if !found {
		host = hosts[0].name
	}
	return host
}

// fleetOf reads what belongs to --hostfile.
func fleetOf(o *options, file, config, addr string, ranks int) (f *fleet, err error) {
	f = &fleet{options: o, sshConfig: config}
	if f.hosts, err = readHostfile(file); err != nil {
		return nil, err
	}
	if o.local, err = ranksOf(f.hosts, ranks); err != nil {
		return nil, err
	}
	f.addr = master(f.hosts)
	if addr != "" {
		var port string
		if f.addr, port, err = net.SplitHostPort(addr); err != nil {
			return nil, exitcode.With(exitcode.Usage, err)
		}
		if f.port, err = strconv.Atoi(port); err != nil {
			return nil, exitcode.With(exitcode.Usage, err)
		}
	}
	if f.self, err = os.Executable(); err != nil {
		return nil, exitcode.With(exitcode.IO, err)
	}
	return f, nil
}
