package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"monotron/internal/system"
)

// Limits of --alert-command.
const (
	commandEvery   = time.Minute      // between its starts
	commandLasts   = 30 * time.Second // at most
	commandAtEnd   = 5 * time.Second  // at most, when the run ends, each of the two that there may be
	alertsWaiting  = 100              // more are dropped, and counted
	commandSaysMax = 2 << 10          // bytes of its output that are kept
)

// AlertLine is what --alert-command reads: one JSON object a line.
type AlertLine struct {
	Time      time.Time `json:"time"`
	Iteration int       `json:"iteration"`
	Alert
}

// AlertCommand hands alerts to a command, in the background and at most once a minute;
// what comes meanwhile waits for the next time.
type AlertCommand struct {
	command string
	every   time.Duration
	atEnd   time.Duration
	warn    func(format string, args ...any)

	lines   chan []byte
	closing context.CancelFunc
	done    sync.WaitGroup
	dropped int
}

// RunAlertCommand runs command by the shell for alerts. Close keeps its rank still for less than
// stall; 0: no limit. warn reports one that fails.
func RunAlertCommand(command string, stall time.Duration, warn func(format string, args ...any)) *AlertCommand {
	atEnd := commandAtEnd
	if stall > 0 {
		atEnd = min(atEnd, stall/3) // two commands, and what their output is waited for
	}
	return runAlertCommand(command, commandEvery, atEnd, warn)
}

func runAlertCommand(command string, every, atEnd time.Duration, warn func(string, ...any)) *AlertCommand {
	ctx, cancel := context.WithCancel(context.Background())
	c := &AlertCommand{command: command, every: every, atEnd: atEnd, warn: warn, lines: make(chan []byte, alertsWaiting), closing: cancel}
	c.done.Add(1)
	go c.serve(ctx)
	return c
}

// Take queues the alerts of a step; it never waits.
func (c *AlertCommand) Take(s *Step) error {
	for _, a := range s.Alerts {
		line, err := json.Marshal(AlertLine{s.Time, s.Iteration, a})
		if err != nil {
			return err
		}
		select {
		case c.lines <- append(line, '\n'):
		default:
			c.dropped++
		}
	}
	return nil
}

// Close hands over what waits, and gives the command a while to end.
func (c *AlertCommand) Close() error {
	c.closing()
	c.done.Wait()
	if c.dropped > 0 {
		c.warn("--alert-command: %d alerts were not passed to the command, because there were too many", c.dropped)
	}
	return nil
}

// serve runs the command, until closing and nothing waits.
func (c *AlertCommand) serve(closing context.Context) {
	defer c.done.Done()
	for {
		select {
		case line := <-c.lines:
			c.run(closing, c.waiting(line))
		case <-closing.Done():
			if input := c.waiting(nil); len(input) > 0 {
				c.run(closing, input)
			}
			return
		}
		select {
		case <-time.After(c.every):
		case <-closing.Done():
		}
	}
}

// waiting are a line and those behind it.
func (c *AlertCommand) waiting(line []byte) []byte {
	for {
		select {
		case more := <-c.lines:
			line = append(line, more...)
		default:
			return line
		}
	}
}

// run starts the command once. It has a process group of its own, so that Ctrl-C on the run
// does not reach it, and what it started ends with it.
func (c *AlertCommand) run(closing context.Context, input []byte) {
	ctx, cancel := context.WithTimeout(context.Background(), commandLasts)
	defer cancel()
	defer context.AfterFunc(closing, func() { time.AfterFunc(c.atEnd, cancel) })()
	command := exec.CommandContext(ctx, "sh", "-c", c.command)
	said := &head{}
	command.Stdin, command.Stdout, command.Stderr = bytes.NewReader(input), said, said
	command.SysProcAttr = system.OwnGroup(&syscall.SysProcAttr{})
	command.Cancel = func() error { return system.SignalGroup(command.Process.Pid, syscall.SIGKILL) }
	command.WaitDelay = min(time.Second, c.atEnd/5)
	switch err := command.Run(); {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		c.warn("--alert-command %q did not end within %v and was killed %s", c.command, commandLasts, said.quoted())
	case ctx.Err() != nil:
		c.warn("--alert-command %q did not end within %v after the end of the run and was killed %s", c.command, c.atEnd, said.quoted())
	case err != nil && !errors.Is(err, exec.ErrWaitDelay): // that is a process that it leaves behind
		c.warn("--alert-command %q: %v %s", c.command, err, said.quoted())
	}
}

// head keeps the first bytes of an output. The buffer is a field, not embedded: io.Copy would
// write past Write, by the buffer's own ReadFrom.
type head struct{ kept bytes.Buffer }

// quoted is the output as no line of our own, and without what moves a terminal's cursor.
func (h *head) quoted() string {
	if text := strings.TrimSpace(h.kept.String()); text != "" {
		return fmt.Sprintf("(its message: %q)", text)
	}
	return "(it wrote no message)"
}

func (h *head) Write(p []byte) (int, error) {
	h.kept.Write(p[:min(len(p), max(0, commandSaysMax-h.kept.Len()))])
	return len(p), nil
}
