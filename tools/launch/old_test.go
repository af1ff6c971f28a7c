package launch

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// Claim (docs/launch.md): the temporary folders of runs that failed over a week ago are removed, but
// not those of a run that still runs, newer ones, links, files and other folders.
func TestOldRunFoldersAreRemoved(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	old := time.Now().Add(-8 * 24 * time.Hour)
	for _, name := range []string{"monotron-run-1", "monotron-run-2", "monotron-run-3", "monotron-run-x", "other-run-4"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "verdict.json"), []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "monotron-run-5"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("other-run-4", filepath.Join(dir, "monotron-run-6")); err != nil {
		t.Fatal(err)
	}
	running := &options{folder: filepath.Join(dir, "monotron-run-2")}
	release := running.lock()
	for _, name := range []string{"monotron-run-1", "monotron-run-2", "monotron-run-x", "other-run-4", "monotron-run-5"} {
		if err := os.Chtimes(filepath.Join(dir, name), old, old); err != nil {
			t.Fatal(err)
		}
	}
	removed := func() (gone []string) {
		removeOld(time.Now())
		for _, name := range []string{"monotron-run-1", "monotron-run-2", "monotron-run-3", "monotron-run-x", "other-run-4/verdict.json", "monotron-run-5", "monotron-run-6"} {
			if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
				gone = append(gone, name)
			}
		}
		return gone
	}
	if gone := removed(); !slices.Equal(gone, []string{"monotron-run-1"}) {
		t.Errorf("removed while a run goes on: %v", gone)
	}
	release()
	if gone := removed(); !slices.Equal(gone, []string{"monotron-run-1", "monotron-run-2"}) {
		t.Errorf("removed in the end: %v", gone)
	}
}
