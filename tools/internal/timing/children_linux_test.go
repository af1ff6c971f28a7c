package timing

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// Claim: a signal ends the program as it would without a folder, and leaves neither the
// folder nor a process that was started.
func TestASignalLeavesNothing(t *testing.T) {
	const inside = "MONOTRON_TEST_INSIDE"
	if os.Getenv(inside) != "" {
		if _, _, err := TemporaryFolder("test-"); err != nil {
			t.Fatal(err)
		}
		cmd := Child(t.Context(), "sleep", "1000")
		cmd.Stdout = os.Stdout // open as long as it lives
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		fmt.Println("begun")
		_ = cmd.Wait()
	}
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		folder := t.TempDir()
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestASignalLeavesNothing$")
		cmd.Env = append(os.Environ(), inside+"=1", "TMPDIR="+folder)
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		cmd.Stdout = w
		err = cmd.Start()
		w.Close()
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(r)
		if !lines.Scan() || lines.Text() != "begun" {
			t.Fatalf("its message was %q", lines.Text())
		}
		if err := cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if got := cmd.ProcessState.Sys().(syscall.WaitStatus); !got.Signaled() || got.Signal() != s {
			t.Errorf("%v: it ended with %v", s, cmd.ProcessState)
		}
		if err := r.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() {
		}
		if err := lines.Err(); err != nil {
			t.Errorf("%v: what it started lives on: %v", s, err)
		}
		if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
			t.Errorf("%v: left are %v %v", s, left, err)
		}
	}
}
