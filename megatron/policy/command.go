package policy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"monotron/internal/exitcode"
	"monotron/internal/system"
)

// Limits of a command's output.
const (
	mostOfLine = 4 << 10 // bytes of its output a line
	mostSaid   = 2 << 10 // of its complaints that are kept
)

// Command has a shell command judge answers. It is started once a batch, reads a JSON object a line,
// the row's fields with prompt and completion, and writes a line for each, in order: a number, or an
// object with the field reward. What goes wrong ends the run: a batch without rewards teaches nothing.
type Command struct {
	Line string
	Time time.Duration // that it may take for a batch
}

// Name is that of logs.
func (Command) Name() string { return "command" }

// Of judges answers.
func (c Command) Of(ctx context.Context, answers []Sampled) ([]float64, error) {
	input, err := lines(answers)
	if err != nil {
		return nil, exitcode.With(exitcode.Internal, err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.Time)
	defer cancel()
	out, said := &limited{most: len(answers) * mostOfLine, full: cancel}, &limited{most: mostSaid}
	command := exec.CommandContext(ctx, "sh", "-c", c.Line)
	command.Stdin, command.Stdout, command.Stderr = bytes.NewReader(input), out, said
	command.SysProcAttr = system.OwnGroup(&syscall.SysProcAttr{}) // what it starts ends with it
	command.Cancel = func() error { return system.SignalGroup(command.Process.Pid, syscall.SIGKILL) }
	command.WaitDelay = time.Second
	err = command.Run()
	if command.Process != nil {
		_ = system.SignalGroup(command.Process.Pid, syscall.SIGKILL) // what it left running
	}
	fail := func(format string, args ...any) error {
		text := fmt.Sprintf("--reward-command %q: ", c.Line) + fmt.Sprintf(format, args...)
		if s := strings.TrimSpace(said.kept.String()); s != "" {
			text += fmt.Sprintf(" (its message: %q)", s)
		}
		return exitcode.Errorf(exitcode.BadData, "%s", text)
	}
	switch {
	case out.over:
		return nil, fail("the command wrote more than %d bytes for %d answers; it must write one number per line", out.most, len(answers))
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, fail("the command did not end within %v; raise --reward-timeout, or make the command faster", c.Time)
	case ctx.Err() != nil:
		return nil, exitcode.With(exitcode.Again, context.Cause(ctx))
	case err != nil && !errors.Is(err, exec.ErrWaitDelay) && !errors.Is(err, syscall.EPIPE):
		return nil, fail("%v", err)
	}
	return rewards(out.kept.String(), len(answers), fail)
}

// lines are the answers as the command reads them.
func lines(answers []Sampled) ([]byte, error) {
	var input bytes.Buffer
	for i := range answers {
		all := map[string]json.RawMessage{}
		maps.Copy(all, answers[i].Fields)
		text, err := json.Marshal(answers[i].Completion)
		if err != nil {
			return nil, err
		}
		all["prompt"], all["completion"] = answers[i].Prompt, text
		line, err := json.Marshal(all)
		if err != nil {
			return nil, err
		}
		input.Write(append(line, '\n'))
	}
	return input.Bytes(), nil
}

// rewards reads n lines.
func rewards(text string, n int, fail func(string, ...any) error) (list []float64, err error) {
	text = strings.TrimRight(text, "\r\n \t")
	if text == "" {
		return nil, fail("the command wrote nothing for %d answers; it must write one number per line", n)
	}
	for number, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if len(list) == n {
			return nil, fail("the command wrote more than %d lines, the number of answers; it must write one number per answer", n)
		}
		var given struct{ Reward *float64 }
		var reward float64
		if json.Unmarshal([]byte(line), &given) == nil && given.Reward != nil {
			reward = *given.Reward
		} else if json.Unmarshal([]byte(line), &reward) != nil || line == "null" {
			return nil, fail("line %d is %.60q; it must be a number, or an object such as {\"reward\": 1}", number+1, line)
		}
		if math.Abs(reward) > mostReward {
			return nil, fail("line %d: the reward %g is not between -%g and %[3]g", number+1, reward, float64(mostReward))
		}
		list = append(list, reward)
	}
	if len(list) < n {
		return nil, fail("the command wrote %d lines for %d answers; it must write one number per answer", len(list), n)
	}
	return list, nil
}

// mostReward is the largest reward: squares of rewards stay finite.
const mostReward = 1e9

// limited keeps the first bytes of an output, and reports when there are more.
type limited struct {
	kept bytes.Buffer
	most int
	over bool
	full func() // called once there are more; nil: nobody asks
}

func (l *limited) Write(p []byte) (int, error) {
	slots := l.most - l.kept.Len()
	l.kept.Write(p[:min(len(p), slots)])
	if len(p) > slots && l.full != nil && !l.over {
		l.over = true
		l.full()
	}
	return len(p), nil
}
