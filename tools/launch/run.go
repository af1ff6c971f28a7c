package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"monotron/csrc/gpus"
	"monotron/internal/argv"
	"monotron/internal/exitcode"
	"monotron/internal/store"
	"monotron/megatron/checkpoint"
	objects "monotron/megatron/checkpoint/remote"
	"monotron/megatron/config"
	"monotron/megatron/training"
	"monotron/mpu/bootstrap/launchenv"
	"monotron/mpu/bootstrap/rendezvous"
	"monotron/mpu/comm/failure"
	"monotron/mpu/health"
)

// run starts the ranks, again after failures where that is asked for and gets
// further.
func (o *options) run(out, notes io.Writer) error {
	signals, stop := listen()
	defer stop()
	out, notes = heard{out, signals}, heard{notes, signals}
	if err := o.makeFolder(); err != nil {
		return err
	}
	defer o.lock()()
	launchenv.Unsay(o.folder)
	if err := o.holdMemory(); err != nil {
		return err
	}
	outcome := training.NewOutcome()
	err := outcome.Begin(o.logs().Result)
	if err == nil {
		err = outcome.Settle(o.logs(), o.attempts(signals, out, notes))
	}
	launchenv.Unsay(o.folder)
	if o.temporary && ofNoUse(err) {
		os.RemoveAll(o.folder) // nothing in it is of use
	} else if o.temporary && os.Remove(o.folder) != nil { // it is not empty
		fmt.Fprintf(notes, "launch: flight records and verdict are in %s (monotron postmortem %s)\n", o.folder, argv.Quoted(o.folder))
	}
	return err
}

// logs says which files the last rank writes on this host.
func (o *options) logs() *config.Log {
	if o.node != o.nodes-1 {
		return &config.Log{}
	}
	return &o.line.config.Log
}

// ofNoUse reports whether nobody reads flight records after such an end: the run was done
// or asked to stop, or a flag or file that was named for it is wrong.
func ofNoUse(err error) bool {
	switch exitcode.CodeOf(err) {
	case exitcode.Done, exitcode.Again, exitcode.Usage, exitcode.NoInput:
		return true
	}
	return false
}

// listen takes the signals that ask to stop. SIGPIPE is among them where nobody reads what
// the ranks print any more, as behind `| head`: heard sends it. The system's own says nothing, as
// it comes for the connections to other hosts too.
func listen() (signals chan os.Signal, stop func()) {
	signals = make(chan os.Signal, 4)
	signal.Notify(signals, launchenv.Stops()...)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return signals, func() {
		signal.Stop(signals)
		signal.Ignore(syscall.SIGPIPE) // the exit code is for somebody, if the last line is not
	}
}

// heard is a writer that sends SIGPIPE when nobody reads it any more.
type heard struct {
	io.Writer
	signals chan<- os.Signal
}

func (h heard) Write(b []byte) (int, error) {
	n, err := h.Writer.Write(b)
	if errors.Is(err, syscall.EPIPE) {
		select {
		case h.signals <- syscall.SIGPIPE:
		default: // others are there to be read
		}
	}
	return n, err
}

// ending is the note for a person about such a signal.
func ending(s os.Signal) string {
	if s == syscall.SIGPIPE {
		return "launch: no program reads the output any more, so the ranks save and end"
	}
	return fmt.Sprintf("launch: %s was received: the ranks save and end; send the signal again to end them at once", launchenv.SignalName(s))
}

// makeFolder makes the folder for what a failed run leaves.
func (o *options) makeFolder() (err error) {
	if o.folder == "" {
		o.temporary = true
		removeOld(time.Now())
		if o.folder, err = os.MkdirTemp("", temporaryName); err != nil {
			return exitcode.Errorf(exitcode.IO, "a folder for flight records cannot be created in TMPDIR %s: %w; set TMPDIR to another folder, or give --run-folder", os.TempDir(), err)
		}
	}
	o.folder, err = filepath.Abs(o.folder)
	return exitcode.With(exitcode.IO, err)
}

// attempts starts the ranks until they are done.
func (o *options) attempts(signals <-chan os.Signal, out, notes io.Writer) (err error) {
	// What must be so before the first start.
	var hosts *gathering
	if o.gathers() {
		if hosts, err = o.newGathering(); err != nil {
			return err
		}
		defer hosts.close()
	}
	if err := o.endStale(notes); err != nil {
		return err
	}
	// One start after the other.
	tries := o.newTries()
	for attempt := 0; ; attempt++ {
		if hosts != nil {
			if over, err := hosts.turn(signals, notes); over || err != nil {
				return err
			}
			attempt = o.start - 1
		}
		again, err := o.attempt(attempt, &tries, signals, out, notes)
		if !again {
			hosts.over(err)
			return err
		}
		if err := o.checkStorage(); err != nil {
			return err // the other hosts may continue, with a spare host
		}
	}
}

// attempt starts the ranks once; again reports that they must be started again.
func (o *options) attempt(number int, tries *tries, signals <-chan os.Signal, out, notes io.Writer) (bool, error) {
	environment, err := o.environment(number)
	if err != nil {
		return false, err
	}
	if err := health.Fresh(o.folder); err != nil {
		return false, err
	}
	a := &attemptRun{options: o, environment: environment, console: newConsole(out, notes, o.prefix), gpus: gpus.Shares(o.local)}
	err = a.run(signals)
	if err == nil || a.stopping || !again(err) {
		return false, err
	}
	tries.failed(max(o.progress(), o.inMemory()), err)
	if tries.futile > o.restarts {
		if !o.shrink() {
			return false, o.givenUp(err, *tries)
		}
		fmt.Fprintf(notes, "launch: %v\nlaunch: continuing with %d ranks\n", err, o.local)
		tries.futile = 0
		return true, nil
	}
	o.startAgain(err, *tries, notes)
	return true, nil
}

// tries are the starts of a run.
type tries struct {
	futile int     // in a row that got no further
	newest int64   // iteration that one has saved; -1: none
	steps  []int64 // in which the futile ones ended; 0: not known
}

// newTries is called before the first start.
func (o *options) newTries() tries {
	o.begun = o.progress()
	return tries{newest: o.begun}
}

// failed counts a start that err has ended; now is the newest iteration after it.
func (t *tries) failed(now int64, err error) {
	if t.futile++; now > t.newest {
		t.newest, t.futile, t.steps = now, 1, nil
	}
	step := int64(0)
	if v := new(failure.Verdict); errors.As(err, &v) {
		step = v.Step
	}
	t.steps = append(t.steps, step)
}

// where says in which steps the futile starts ended.
func (t *tries) where() string {
	var words []string
	for _, step := range slices.Compact(slices.Sorted(slices.Values(t.steps))) {
		if step > 0 {
			words = append(words, strconv.FormatInt(step, 10))
		}
	}
	switch {
	case len(words) == 0:
		return "before their first step"
	case len(words) == 1:
		return "in step " + words[0]
	}
	return "in steps " + strings.Join(words, ", ")
}

// givenUp is how the last start ended, and how many had been made.
func (o *options) givenUp(err error, t tries) error {
	if o.restarts == 0 {
		return err
	}
	text := fmt.Sprintf("the run is not restarted again: the last %d starts did not pass iteration %d and ended %s", t.futile, max(0, t.newest), t.where())
	if v, read := failure.Read(o.folder); read == nil { // the verdict that is kept is that of the run
		v.Text += " (" + text + ")"
		v.Starts = t.futile
		if written := v.Write(o.folder); written != nil {
			err = errors.Join(err, written)
		}
	}
	return exitcode.With(exitcode.CodeOf(err), fmt.Errorf("%w (%s)", err, text))
}

// startAgain prepares and reports the next start, after one that ended with err.
func (o *options) startAgain(err error, t tries, notes io.Writer) {
	o.resume()
	fmt.Fprintf(notes, "launch: %v\nlaunch: restarting (%d of %d since iteration %d)\n", err, t.futile, o.restarts, max(0, t.newest))
}

// stoppable waits for something that a signal ends.
func stoppable(signals <-chan os.Signal, wait func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- wait(ctx) }()
	for {
		select {
		case err := <-done:
			return err
		case <-signals:
			cancel()
		}
	}
}

// again reports whether starting again can help: not with a wrong flag, bad or
// missing data, nor where ranks were asked to stop.
func again(err error) bool {
	switch exitcode.CodeOf(err) {
	case exitcode.Usage, exitcode.BadData, exitcode.NoInput, exitcode.Again:
		return false
	}
	return true
}

// resume has the command continue from what it has saved since it was begun first; before that
// it begins as it did.
func (o *options) resume() {
	if now := o.progress(); now >= 0 && now != o.begun {
		o.continueSaved()
	}
}

// continueSaved has the command continue from what it has saved.
func (o *options) continueSaved() {
	if o.resumes {
		return
	}
	switch o.resumes = true; {
	case o.line.ours:
		o.words = append(slices.Clone(o.words), "--resume-from-save")
	case !o.line.given("load"):
		o.words = append(slices.Clone(o.words), "--load", o.saves)
	}
}

// saves is --save of the command, and the folder of this host in which its checkpoints are.
func saves(c *config.Checkpoint) (name, folder string, err error) {
	folder = c.Save
	if store.IsURL(c.Save) {
		folder, err = objects.Folder(c.Save, c.LocalDir)
	}
	return c.Save, folder, err
}

// progress is the newest checkpoint's iteration; -1: there is none.
func (o *options) progress() int64 {
	if o.saves == "" {
		return -1
	}
	newest, err := checkpoint.ReadTracker(o.staged)
	if err != nil || newest.Release {
		return -1
	}
	return newest.Iteration
}

// environment is what all ranks of an attempt have in common. The secret goes this
// way and no other: command lines can be read by everybody.
func (o *options) environment(attempt int) ([]string, error) {
	// A free port for every attempt: the last attempt's may still be in use.
	addr := o.addr
	if addr == "" {
		var err error
		if addr, err = rendezvous.FreeAddr(); err != nil {
			return nil, err
		}
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, exitcode.With(exitcode.Usage, err)
	}
	environment := os.Environ()
	set := func(name, value string) { environment = append(environment, name+"="+value) }
	// torchrun's variables, which programs of torch read too; what differs between ranks is added per rank.
	set("MASTER_ADDR", host)
	set("MASTER_PORT", port)
	set("WORLD_SIZE", strconv.Itoa(o.local*o.nodes))
	set("LOCAL_WORLD_SIZE", strconv.Itoa(o.local))
	set("GROUP_RANK", strconv.Itoa(o.node))
	set("TORCHELASTIC_USE_AGENT_STORE", "False")
	// Our own.
	set(launchenv.Restarts, strconv.Itoa(attempt))
	set(launchenv.Own, "1")
	set(launchenv.Launcher, strconv.Itoa(os.Getpid()))
	set(launchenv.RunFolder, o.folder)
	if o.fewer {
		set(launchenv.FewerRanks, "1")
	}
	// Several hosts must have the same secret, so there the caller sets it.
	if os.Getenv("MONOTRON_SECRET") == "" && o.nodes == 1 {
		set("MONOTRON_SECRET", launchenv.NewSecret())
	}
	return environment, nil
}
