package atomicfile

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"monotron/internal/exitcode"
)

// Claim (CWE-59): a file with a foreseeable name is never opened through a link that someone has
// put there, and what the link points to keeps its content.
func TestScratchFollowsNoLink(t *testing.T) {
	for what, plant := range map[string]func(target, name string) error{
		"symbolic link":  os.Symlink,
		"hard link":      os.Link,
		"not a regular":  func(_, name string) error { return syscall.Mkfifo(name, 0o600) },
		"is a directory": func(_, name string) error { return os.Mkdir(name, 0o700) },
	} {
		dir := t.TempDir()
		target, name := filepath.Join(dir, "target"), filepath.Join(dir, ".x.partial")
		if err := os.WriteFile(target, []byte("kept"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := plant(target, name); err != nil {
			t.Fatal(err)
		}
		f, err := Scratch(name, 0o666)
		if err == nil {
			f.Close()
		}
		if err == nil || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", what, err)
		}
		if text, err := os.ReadFile(target); err != nil || string(text) != "kept" {
			t.Errorf("%s: the target holds %q (%v)", what, text, err)
		}
	}
}

// Claim: a file that an earlier process left is opened with its content.
func TestScratchContinues(t *testing.T) {
	name := filepath.Join(t.TempDir(), ".x.partial")
	for _, want := range []int64{0, 3} {
		f, err := Scratch(name, 0o666)
		if err != nil {
			t.Fatal(exitcode.CodeOf(err), err)
		}
		if info, err := f.Stat(); err != nil || info.Size() != want {
			t.Errorf("%v bytes (%v), want %d", info, err, want)
		}
		if _, err := f.WriteString("abc"); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
}
