package golden

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Claim: scripts that train the golden cases, on a GPU too, get those of a device and no others.
func TestScriptsTakeCasesOfDevices(t *testing.T) {
	shared, want := t.TempDir(), ""
	for i, name := range []string{"gpt2-tanh", "moe-softmax", "opt-of-another", "moe-bias-aux", "pretrain-gpt2", "schedules"} {
		dir := filepath.Join(shared, "golden/model", name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "case.json"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if i < 3 {
			want += dir + "\n"
		}
	}
	list := exec.Command("sh", "scripts/golden-cases.sh")
	list.Dir, list.Env = "../..", append(os.Environ(), "MONOTRON_SHARED="+shared)
	var said strings.Builder
	list.Stdout, list.Stderr = &said, &said
	if err := list.Run(); err != nil || said.String() != want {
		t.Errorf("%v: %q, want %q", err, said.String(), want)
	}
}
