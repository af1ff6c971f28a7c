package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// program builds monotron into a folder with its links, once a test run.
func program(t *testing.T) (folder string) {
	t.Helper()
	folder = t.TempDir()
	build := exec.Command("go", "build", "-o", filepath.Join(folder, "monotron"), ".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building: %v\n%s", err, out)
	}
	for _, name := range []string{"pretrain_gpt", "preprocess_data"} {
		if err := os.Symlink("monotron", filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// TestExamples runs every script of examples/ in a folder of its own: the
// commands of the documentation are commands that work.
func TestExamples(t *testing.T) {
	scripts, err := filepath.Glob("examples/*.sh")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	bin := program(t)
	repo, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, script := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(script), ".sh"), func(t *testing.T) {
			path, err := filepath.Abs(script)
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("sh", "-eu", path)
			cmd.Dir = t.TempDir()
			cmd.Env = append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"), "REPO="+repo)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// TestEveryCommandHasAnExample: a command without one is not done.
func TestEveryCommandHasAnExample(t *testing.T) {
	for _, c := range commands() {
		if _, err := os.Stat(filepath.Join("examples", c.Name+".sh")); err != nil {
			t.Errorf("%s has no example: %v", c.Name, err)
		}
	}
}
