package tests

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Claim (docs/install.md): make install puts the program with its links, manual pages, completions and unit below a
// prefix, where it runs; make uninstall leaves no file of it.
func TestInstall(t *testing.T) {
	root := t.TempDir()
	install := func(args ...string) {
		t.Helper()
		cmd := exec.Command("sh", append([]string{filepath.Join(repository, "scripts", "install.sh")}, args...)...)
		cmd.Env = append(os.Environ(), "PREFIX=/opt/monotron", "DESTDIR="+root)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("install.sh %q: %v\n%s", args, err, out)
		}
	}
	install(filepath.Join(program(t), "monotron"))
	bin := filepath.Join(root, "opt", "monotron", "bin")
	for _, name := range []string{"monotron", "pretrain_gpt", "preprocess_data", "pretrain_gpt.py"} {
		if out, err := exec.Command(filepath.Join(bin, name), "--version").Output(); err != nil || !strings.Contains(string(out), "monotron") {
			t.Errorf("%s --version: %v: %s", name, err, out)
		}
	}
	for _, file := range []string{"share/man/man1/monotron.1", "share/man/man1/pretrain_gpt.1", "share/bash-completion/completions/pretrain_gpt", "lib/systemd/system/monotron-serve.service"} {
		if st, err := os.Stat(filepath.Join(root, "opt", "monotron", file)); err != nil || st.Size() == 0 {
			t.Errorf("%s: %v", file, err)
		}
	}
	install("-u")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			t.Errorf("uninstall leaves %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// namedFile is a file of this repository that a script names.
var namedFile = regexp.MustCompile(`(?:^|[\s"'=(])((?:scripts|tests|tools|docs|examples|packaging)/[\w./-]+\.(?:sh|py|bash|yaml|yml|go|md|service|default))\b`)

// Claim: files that scripts name exist, so that none is moved without them.
func TestScriptsNameFilesThatExist(t *testing.T) {
	scripts, err := filepath.Glob(filepath.Join(repository, "scripts", "*.sh"))
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	named := 0
	for _, script := range append(scripts, filepath.Join(repository, "Makefile"), filepath.Join(repository, ".ci", "run"), filepath.Join(repository, "Dockerfile")) {
		text, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range namedFile.FindAllStringSubmatch(string(text), -1) {
			named++
			if _, err := os.Stat(filepath.Join(repository, m[1])); err != nil {
				t.Errorf("%s names %s, which does not exist", filepath.Base(script), m[1])
			}
		}
	}
	if named < 20 {
		t.Errorf("scripts name %d files: the pattern is broken", named)
	}
}
