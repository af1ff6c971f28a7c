package diff

import (
	"bytes"
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"monotron/fault"
	"monotron/megatron/checkpoint/all"
	"monotron/megatron/formats"
	"monotron/mpu"
	"monotron/tools/internal/command"
)

const tiny = "../../megatron/formats/hf/testdata/gpt2-tiny"

func call(args ...string) (string, error) {
	var out bytes.Buffer
	app := &cli.App{Writer: &out, Commands: []*cli.Command{Command()}, ExitErrHandler: func(*cli.Context, error) {}}
	err := app.Run(append([]string{"monotron", "diff"}, args...))
	return out.String(), err
}

// changed shows a Source whose tensor `name` has its second byte flipped in the
// first element, and another iteration.
type changed struct {
	formats.Source
	name      string
	iteration int64
}

func (c *changed) Read(name string, box mpu.Piece, dst []byte) error {
	err := c.Source.Read(name, box, dst)
	if name == c.name && box.From[0] == 0 {
		dst[1] ^= 1
	}
	return err
}

func (c *changed) State() formats.State {
	s := c.Source.State()
	s.Iteration = c.iteration
	return s
}

// write makes native checkpoints of the tiny model, the second one changed.
func write(t *testing.T, name string) (before, after string) {
	t.Helper()
	src, err := all.Open(tiny, formats.OpenOptions{Step: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	dir := t.TempDir()
	before, after = filepath.Join(dir, "before"), filepath.Join(dir, "after")
	for path, s := range map[string]formats.Source{before: src, after: &changed{src, name, 7}} {
		if _, err := all.Write(context.Background(), formats.Native, path, s, formats.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return before, after
}

// A checkpoint equals its conversion: exit 0.
func TestEqual(t *testing.T) {
	before, _ := write(t, "")
	out, err := call(tiny, before)
	if err != nil || !strings.Contains(out, "0 of") {
		t.Errorf("%v\n%s", err, out)
	}
}

// One changed bit is found: its tensor, its element, exit 1; so is the iteration.
func TestOneBit(t *testing.T) {
	const name = "model.decoder.final_layernorm.weight"
	before, after := write(t, name)
	out, err := call(before, after)
	if fault.CodeOf(err) != fault.Differs {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, say := range []string{name, "[0]", "1 of", "iteration", "7"} {
		if !strings.Contains(out, say) {
			t.Errorf("%q is not said in\n%s", say, out)
		}
	}
	if out, err := call("--weights-only", "--rtol", "1", before, after); err != nil {
		t.Errorf("within the tolerance, and yet: %v\n%s", err, out)
	}
	out, err = call("--json", before, after)
	var r report
	if fault.CodeOf(err) != fault.Differs || json.Unmarshal([]byte(out), &r) != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if len(r.Tensors) != 1 || r.Tensors[0].Name != name || r.Tensors[0].Different != 1 || r.Equal || len(r.State) != 1 {
		t.Errorf("%+v", r)
	}
}

// The table keeps to the width it is given.
func TestTableFits(t *testing.T) {
	long := "model." + strings.Repeat("a_long_name.", 20)
	if got := middle(long, 30); len([]rune(got)) != 30 || !strings.HasPrefix(got, "model.") || !strings.HasSuffix(got, "name.") {
		t.Errorf("%q", got)
	}
	if got := end(long, 10); len([]rune(got)) != 10 {
		t.Errorf("%q", got)
	}
}

// Claim: names that differ are shortened to names that differ.
func TestShortNamesDiffer(t *testing.T) {
	var rows [][]string
	for _, kind := range []string{"main", "exp_avg", "exp_avg_sq"} {
		rows = append(rows, []string{"optimizer." + kind + ".decoder.layers.11.self_attention.linear_qkv.layer_norm_weight", "1.00e-03", strings.Repeat("x", 60)})
	}
	for width := 40; width < 140; width += 10 {
		var out bytes.Buffer
		grid(&command.Printer{W: &out}, width, rows)
		first := map[string]bool{}
		for _, line := range strings.Split(strings.TrimSpace(out.String()), "\n") {
			first[strings.Fields(line)[0]] = true
		}
		if len(first) != len(rows) {
			t.Errorf("at %d columns:\n%s", width, out.String())
		}
	}
}

// Wrong calls are told apart from differences.
func TestRefuses(t *testing.T) {
	for _, args := range [][]string{{tiny}, {tiny, tiny, "--rtol", "-1"}} {
		if _, err := call(args...); fault.CodeOf(err) != fault.Usage {
			t.Errorf("%q: %v", args, err)
		}
	}
	if _, err := call(tiny, "/nowhere"); fault.CodeOf(err) != fault.NoInput {
		t.Errorf("missing: %v", err)
	}
}
