package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"monotron/internal/exitcode"
)

// holds fails unless folder has exactly these names.
func holds(t *testing.T, folder string, names ...string) {
	t.Helper()
	list, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range list {
		got = append(got, e.Name())
	}
	if len(got) != len(names) {
		t.Fatalf("the folder holds %q, want %q", got, names)
	}
	for i := range names {
		if got[i] != names[i] {
			t.Fatalf("the folder holds %q, want %q", got, names)
		}
	}
}

func reads(t *testing.T, path, want string) {
	t.Helper()
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Fatalf("%s holds %q (%v), want %q", path, got, err, want)
	}
}

// TestOldContentStaysUntilTheNewIsComplete: a reader finds the old file or the new one,
// and after an error the old one and nothing else.
func TestOldContentStaysUntilTheNewIsComplete(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := WriteFile(path, 0o600, []byte("ol"), []byte("d")); err != nil {
		t.Fatal(err)
	}
	stop := errors.New("the writer's own trouble")
	err := Write(path, 0o600, func(f *os.File) error {
		if _, err := f.WriteString("half"); err != nil {
			t.Fatal(err)
		}
		reads(t, path, "old")
		return stop
	})
	if !errors.Is(err, stop) || exitcode.CodeOf(err) != exitcode.Internal {
		t.Fatalf("the writer's error came back as %v", err)
	}
	holds(t, dir, "file")
	reads(t, path, "old")
	if err := WriteFile(path, 0o600, []byte("new")); err != nil {
		t.Fatal(err)
	}
	holds(t, dir, "file")
	reads(t, path, "new")
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v (%v), want 0600", st.Mode(), err)
	}
}

// TestRefusals: every error has the code of its kind and leaves nothing.
func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		do   func() error
		want exitcode.Code
	}{
		{"a device", func() error { return WriteFile("/dev/null", 0o600, nil) }, exitcode.Usage},
		{"a folder", func() error { return WriteFile(filepath.Join(dir, "folder"), 0o600, nil) }, exitcode.Usage},
		{"no folder above", func() error { return WriteFile(filepath.Join(dir, "none", "file"), 0o600, nil) }, exitcode.IO},
		{"a write that fails", func() error {
			return Write(filepath.Join(dir, "file"), 0o600, func(f *os.File) error { f.Close(); _, err := f.WriteString("x"); return err })
		}, exitcode.IO},
		{"a folder over another with files", func() error {
			if err := os.WriteFile(filepath.Join(dir, "folder", "file"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return Folder(filepath.Join(dir, "folder"), func(string) error { return nil })
		}, exitcode.IO},
		{"a folder whose filling fails", func() error {
			return Folder(filepath.Join(dir, "other"), func(tmp string) error {
				return errors.Join(os.WriteFile(filepath.Join(tmp, "file"), nil, 0o600), exitcode.Errorf(exitcode.BadData, "no"))
			})
		}, exitcode.BadData},
	} {
		if err := c.do(); exitcode.CodeOf(err) != c.want {
			t.Errorf("%s: %v has code %d, want %d", c.name, err, exitcode.CodeOf(err), c.want)
		}
	}
	holds(t, dir, "folder")
}

// TestTheFirstWins: of several that make one file at once all find the same content.
func TestTheFirstWins(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	var makers sync.WaitGroup
	seen := make([]string, 8)
	for i := range seen {
		makers.Go(func() {
			if err := WriteNew(path, 0o600, []byte{byte('a' + i)}); err != nil {
				t.Error(err)
			}
			text, err := os.ReadFile(path)
			if err != nil {
				t.Error(err)
			}
			seen[i] = string(text)
		})
	}
	makers.Wait()
	holds(t, dir, "file")
	for _, s := range seen {
		if s != seen[0] || len(s) != 1 {
			t.Fatalf("makers found %q", seen)
		}
	}
}

// Claim: of files that belong together all get their names, or none does.
func TestFilesThatBelongTogether(t *testing.T) {
	dir := t.TempDir()
	if err := WriteFiles(dir, 0o666, map[string][]byte{"a": []byte("1"), "b": []byte("1")}); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "c"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := WriteFiles(dir, 0o666, map[string][]byte{"a": []byte("2"), "b": []byte("2"), "c": []byte("2")}); err == nil {
		t.Error("a file took the place of a folder")
	}
	holds(t, dir, "a", "b", "c")
	reads(t, filepath.Join(dir, "a"), "1")
	reads(t, filepath.Join(dir, "b"), "1")
}
