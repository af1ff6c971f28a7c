package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Claim (docs/install.md): a build is called v and VERSION on that release's tag and without
// a repository, v0.1.0-dev+COMMIT on any other commit, -dirty with changes that are not
// committed, and v0.1.0-dev where git cannot be asked.
func TestVersionScript(t *testing.T) {
	script, err := filepath.Abs("../scripts/version.sh")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(script)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	run := func(env []string, line string) string {
		cmd := exec.Command("sh", "-ec", line)
		cmd.Dir = dir
		cmd.Env = append(append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b",
			"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b"), env...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", line, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	write := func(name, text string) {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(env []string, want string) {
		t.Helper()
		if got := run(env, "sh scripts/version.sh"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	write("scripts/version.sh", string(text))
	write("VERSION", "1.2.3\n")
	expect(nil, "v1.2.3")
	run(nil, "git init -q && git add . && git commit -qm one")
	commit := run(nil, "git rev-parse --short=9 HEAD")
	expect(nil, "v1.2.3-dev+"+commit)
	run(nil, "git tag v1.2.3")
	expect(nil, "v1.2.3")
	write("VERSION", "1.2.3\n\n")
	expect(nil, "v1.2.3-dev+"+commit+"-dirty")
	expect([]string{"GIT_DIR=/nowhere"}, "v1.2.3-dev")
}
