package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Claim (docs/exit-codes.md): limits too low for Go's runtime itself are one line that
// names the limit, and 70: not the runtime's crash with the code of a wrong flag.
func TestLimits(t *testing.T) {
	if out, err := exec.Command("go", "env", "CGO_ENABLED").Output(); err != nil || strings.TrimSpace(string(out)) != "1" {
		t.Skipf("without cgo nothing runs before Go's runtime: %v", err)
	}
	limits := map[string][]string{"ulimit -v": {"200000", "1200000", "2000000"}}
	if os.Getuid() != 0 { // root has no limit of threads
		limits["ulimit -u"] = []string{"2"}
	}
	for limit, values := range limits {
		for _, value := range values {
			cmd := exec.Command("bash", "-c", limit+" "+value+` && exec "$0" --help`, filepath.Join(program(t), "monotron"))
			out, _ := cmd.CombinedOutput() // its code says it
			if text := string(out); cmd.ProcessState.ExitCode() != 70 || !strings.HasPrefix(text, "monotron: "+limit) || strings.Count(text, "\n") != 1 {
				t.Errorf("%s %s: code %d: %s", limit, value, cmd.ProcessState.ExitCode(), text)
			}
		}
	}
}

// Claim (docs/exit-codes.md): what cannot be printed is not done: 74, whoever prints it.
func TestLostOutput(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("no /dev/full here")
	}
	for _, args := range []string{"--help", "--version", "verify --help", "plan", "completion bash", "man"} {
		cmd := exec.Command("bash", "-c", `exec "$0" `+args+" >/dev/full", filepath.Join(program(t), "monotron"))
		out, _ := cmd.CombinedOutput() // its code says it
		if text := string(out); cmd.ProcessState.ExitCode() != 74 || strings.Count(text, "\n") != 1 || !strings.Contains(text, "no space left") {
			t.Errorf("%s: code %d: %s", args, cmd.ProcessState.ExitCode(), text)
		}
	}
}
