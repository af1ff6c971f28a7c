package timing

import (
	"context"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"monotron/internal/exitcode"
	"monotron/internal/system"
	"monotron/mpu/bootstrap/launchenv"
	"monotron/tools/internal/command"
)

// Again is this program once more, as a process that does not outlive this one.
func Again(ctx context.Context, words ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, exitcode.With(exitcode.IO, err)
	}
	return Child(ctx, self, words...), nil
}

// Child is a process that does not outlive this one.
func Child(ctx context.Context, program string, words ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, words...)
	cmd.SysProcAttr = command.Tied()
	return cmd
}

// TemporaryFolder is there until remove is called, or a signal ends the program.
func TemporaryFolder(name string) (dir string, remove func(), err error) {
	stops, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(stops, launchenv.Stops()...)
	if dir, err = os.MkdirTemp("", name); err != nil {
		signal.Stop(stops)
		return "", nil, exitcode.With(exitcode.IO, err)
	}
	go func() {
		select {
		case s := <-stops:
			_ = os.RemoveAll(dir)
			signal.Reset(s)
			_ = system.SignalSelf(s.(syscall.Signal)) // the end that it would have been
		case <-done:
		}
	}()
	return dir, func() {
		signal.Stop(stops)
		close(done)
		_ = os.RemoveAll(dir)
	}, nil
}
