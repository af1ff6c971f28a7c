package launch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monotron/internal/exitcode"
)

// Claim (docs/launch.md): the launcher reads the flags of the command that it starts as
// that command does, from the command line and from --config.
func TestFlagsOfTheCommand(t *testing.T) {
	yaml := filepath.Join(t.TempDir(), "run.yaml")
	text := "save: from-yaml\ntensor_model_parallel_size: 2\npipeline-model-parallel-size: 2\nglobal-batch-size: 8\nload: elsewhere\n"
	if err := os.WriteFile(yaml, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		line  string
		saves string
		load  bool
		sizes layout
		fits  string // numbers of ranks up to 9
	}{
		{"pretrain_gpt --config " + yaml, "from-yaml", true, layout{2, 2, 1, 1, 2, 8, 1}, "48"},
		{"monotron pretrain_gpt --config " + yaml + " --save typed --tensor_model_parallel_size=1", "typed", true, layout{1, 2, 1, 1, 1, 8, 1}, "248"},
		{"bin/pretrain_gpt --save here --micro-batch-size 2 --global-batch-size 12", "here", false, layout{1, 1, 1, 1, 1, 12, 2}, "1236"},
		{"another_program --save there --its-own flag", "there", false, layout{1, 1, 1, 1, 1, 0, 1}, "123456789"},
		{"sh -c pretrain", "", false, layout{1, 1, 1, 1, 1, 0, 1}, "123456789"},
	} {
		o := &options{line: readLine(strings.Fields(c.line), 8)}
		fits := ""
		for ranks := 1; ranks <= 9; ranks++ {
			if o.layout().holds(ranks) {
				fits += string(rune('0' + ranks))
			}
		}
		if got := o.layout(); o.line.config.Checkpoint.Save != c.saves || o.line.given("load") != c.load || got != c.sizes || fits != c.fits {
			t.Errorf("%s: saves %q, load %v, %+v, fits %s; want %+v", c.line, o.line.config.Checkpoint.Save, o.line.given("load"), got, fits, c)
		}
	}
}

// TestConfigFileThatIsMissing: it may have named --save, so its absence is what is reported.
func TestConfigFileThatIsMissing(t *testing.T) {
	line := readLine([]string{"pretrain_gpt", "--config", filepath.Join(t.TempDir(), "none.yaml")}, 1)
	if exitcode.CodeOf(line.err) != exitcode.NoInput {
		t.Errorf("%v, want a missing input", line.err)
	}
}
