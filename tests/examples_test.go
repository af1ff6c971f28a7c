package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestExamples runs every script of examples/ in a folder of its own: the
// commands of the documentation are commands that work.
func TestExamples(t *testing.T) {
	scripts, err := filepath.Glob(filepath.Join(repository, "examples", "*.sh"))
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	bin := program(t)
	for _, script := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(script), ".sh"), func(t *testing.T) {
			if testing.Short() && filepath.Base(script) == "measure.sh" {
				t.Skip("not with -short: plain Go takes minutes to measure itself")
			}
			cmd := exec.Command("sh", "-eu", script)
			cmd.Dir = t.TempDir()
			cmd.Env = append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"), "REPO="+repository)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			made, err := os.ReadDir(cmd.Dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range made {
				if _, err := os.Stat(filepath.Join(repository, f.Name())); err == nil {
					t.Errorf("it writes %s, which is something else in the repository's folder, where a reader may start it", f.Name())
				}
			}
		})
	}
}

// Claim (README.md): make quickstart trains, kills and resumes a run, and finds what is
// trained twice equal bit for bit. Here on 1.5 MB of the corpus, for 40 steps.
func TestQuickstart(t *testing.T) {
	out := filepath.Join(t.TempDir(), "quickstart")
	cmd := exec.Command("bash", filepath.Join(repository, "scripts", "quickstart.sh"))
	cmd.Env = append(os.Environ(), "BIN="+program(t), "OUT="+out, "TRAIN_SECONDS=1", "CORPUS=1500000")
	text, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(text), "bit for bit: 6 steps trained twice") {
		t.Fatalf("%v\n%s", err, text)
	}
	if st, err := os.Stat(filepath.Join(out, "report.html")); err != nil || st.Size() == 0 {
		t.Errorf("no report: %v", err)
	}
}
