package main

import (
	"os"
	"os/exec"
	"strings"

	"monotron/fault"
)

// show prints a command and runs it in view.
func show(name string, args ...string) error {
	printCommand(name, args)
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return failed(name, cmd.Run())
}

// start runs a command in the background; what it says goes to the end of log.
func start(log, name string, args ...string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		return nil, fault.With(fault.IO, err)
	}
	defer out.Close() // the child has its own
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return nil, failed(name, err)
	}
	p := &process{cmd: cmd, log: log, ended: make(chan error, 1)}
	go func() { p.ended <- cmd.Wait() }()
	return p, nil
}

// process is a command in the background.
type process struct {
	cmd   *exec.Cmd
	log   string
	ended chan error // its exit, once
}

// kill is kill -9: the process gets no chance to do anything.
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil {
		return failed(p.cmd.Path, err)
	}
	<-p.ended
	return nil
}

// failure explains an exit that was not asked for, with the end of the log.
func (p *process) failure(err error) error {
	text, _ := os.ReadFile(p.log) // the exit below is the news; the log is a help
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return fault.Errorf(fault.Internal, "%w; the end of %s:\n%s", failed(p.cmd.Path, err), p.log, strings.Join(lines[max(0, len(lines)-12):], "\n"))
}

func failed(name string, err error) error {
	if err == nil {
		return nil
	}
	return fault.Errorf(fault.Internal, "%s: %w", name, err)
}

// printCommand writes a command as it would be typed, a few flags a line.
func printCommand(name string, args []string) {
	line := "$ " + name
	for _, word := range args {
		if strings.HasPrefix(word, "--") && len(line) > 90 {
			say("%s \\", line)
			line = "   "
		}
		line += " " + quoted(word)
	}
	say("%s", line)
}

func quoted(word string) string {
	if word != "" && !strings.ContainsAny(word, " \t\n'\"\\$*?{}()") {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
