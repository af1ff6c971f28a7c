package launch

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"monotron/internal/exitcode"
	"monotron/mpu/bootstrap/launchenv"
)

// longestPlan is the most that an agent reads of its first line.
const longestPlan = 4 << 20

// agent is what ssh starts on a host: it reads a plan, starts the launch that it
// describes, passes on what else it receives, and ends the launch, and with it the
// ranks, when nobody is left to tell it anything.
func agent(in io.Reader) error {
	input := bufio.NewReader(io.LimitReader(in, longestPlan))
	line, err := input.ReadBytes('\n')
	if err != nil {
		return exitcode.Errorf(exitcode.Usage, "launch --agent can only be started by launch --hostfile: %w", err)
	}
	var p plan
	if err := json.Unmarshal(line, &p); err != nil {
		return exitcode.Errorf(exitcode.Usage, "launch --agent: the plan on standard input is invalid: %v", err)
	}
	if len(p.Args) == 0 {
		return exitcode.Errorf(exitcode.Usage, "launch --agent: the plan on standard input has no command")
	}
	self, err := os.Executable()
	if err != nil {
		return exitcode.With(exitcode.IO, err)
	}
	if p.Folder != "" {
		if err := os.Chdir(p.Folder); err != nil {
			return exitcode.Errorf(exitcode.NoInput, "cannot change to the folder in which the run was started: %w", err)
		}
	}
	runtime.LockOSThread() // the kernel ends the launch when this thread ends
	cmd := exec.Command(self, p.Args...)
	cmd.Env = append(append(os.Environ(), p.Environment...), launchenv.Own+"=1") // it says in fields why it ends
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = tied()
	if err := cmd.Start(); err != nil {
		return exitcode.With(exitcode.IO, err)
	}
	go obey(input, cmd.Process)
	_ = cmd.Wait() // the state says it
	if cmd.ProcessState.Success() {
		return nil
	}
	os.Exit(exitCode(cmd.ProcessState)) // it has said why
	return nil
}

// exitCode is what a shell would say.
func exitCode(s *os.ProcessState) int {
	if status := s.Sys().(syscall.WaitStatus); status.Signaled() {
		return 128 + int(status.Signal())
	}
	return s.ExitCode()
}

// obey passes signals on until the input ends, then ends the launch: first so that
// ranks can save, then at once.
func obey(input *bufio.Reader, launch *os.Process) {
	for {
		word, err := input.ReadString('\n')
		if err != nil {
			break
		}
		if strings.TrimSpace(word) == strings.TrimSpace(tellTerm) {
			_ = launch.Signal(syscall.SIGTERM) // it may be gone
		}
	}
	_ = launch.Signal(syscall.SIGTERM) // it may be gone
	time.Sleep(time.Second)
	_ = launch.Signal(syscall.SIGTERM) // the second one ends the ranks
	time.Sleep(5 * time.Second)
	_ = launch.Kill() // and with it the ranks
}
