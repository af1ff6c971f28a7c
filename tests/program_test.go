package tests

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// repository is the root of the tree.
var repository = func() string {
	root, err := filepath.Abs("..")
	if err != nil {
		panic(err)
	}
	return root
}()

// programs is where the run's programs lie.
var programs string

func TestMain(m *testing.M) {
	var err error
	if programs, err = os.MkdirTemp("", "monotron-tests"); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(programs)
	os.Exit(code)
}

// build makes monotron and its links.
var build = sync.OnceValue(func() error {
	if err := noticeSources(); err != nil {
		return err
	}
	cmd := exec.Command("go", "build", "-o", filepath.Join(programs, "monotron"), ".")
	cmd.Dir = repository
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building: %v\n%s", err, out)
	}
	for _, name := range []string{"pretrain_gpt", "preprocess_data"} {
		if err := os.Symlink("monotron", filepath.Join(programs, name)); err != nil {
			return err
		}
	}
	return nil
})

// program is a folder with monotron and its links, built for the first test that asks.
func program(t *testing.T) (folder string) {
	t.Helper()
	if err := build(); err != nil {
		t.Fatal(err)
	}
	return programs
}

// noticeSources opens every folder of sources: go test takes an earlier result only while
// what a test has opened is as it was, and does not see that the program is made of it.
func noticeSources() error {
	return walkSources(func(string) error { return nil })
}

// walkSources calls visit with every file of the tree, by its path from the root, but those
// that builds and runs leave.
func walkSources(visit func(path string) error) error {
	return filepath.WalkDir(repository, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(repository, path)
		switch {
		case err != nil:
			return err
		case !d.IsDir():
			return visit(filepath.ToSlash(name))
		case name == "bin" || name == "quickstart" || name == "quickstart-tune" || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && name != ".":
			return filepath.SkipDir
		}
		return nil
	})
}
