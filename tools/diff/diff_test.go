package diff

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"monotron/internal/exitcode"
	"monotron/internal/golden"
	"monotron/internal/pickle"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/all"
	"monotron/mpu"
	"monotron/tools/internal/command"
)

const tiny = "../../megatron/checkpoint/hf/testdata/gpt2-tiny"

func call(args ...string) (string, error) {
	var out bytes.Buffer
	app := &cli.App{Writer: &out, Commands: []*cli.Command{Command()}, ExitErrHandler: func(*cli.Context, error) {}}
	err := app.Run(append([]string{"monotron", "diff"}, args...))
	return out.String(), err
}

// changed shows a Source whose tensor `name` has its second byte flipped in the
// first element, and another iteration.
type changed struct {
	checkpoint.Source
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

func (c *changed) State() checkpoint.State {
	s := c.Source.State()
	s.Iteration = c.iteration
	return s
}

// write makes native checkpoints of the tiny model, the second one changed.
func write(t *testing.T, name string) (before, after string) {
	t.Helper()
	src, err := all.Open(tiny, checkpoint.OpenOptions{Step: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	dir := t.TempDir()
	before, after = filepath.Join(dir, "before"), filepath.Join(dir, "after")
	for path, s := range map[string]checkpoint.Source{before: src, after: &changed{src, name, 7}} {
		if _, err := all.Write(context.Background(), checkpoint.Native, path, s, checkpoint.WriteOptions{}); err != nil {
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
	if exitcode.CodeOf(err) != exitcode.Differs {
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
	if exitcode.CodeOf(err) != exitcode.Differs || json.Unmarshal([]byte(out), &r) != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if len(r.Tensors) != 1 || r.Tensors[0].Name != name || r.Tensors[0].Different != 1 || r.Equal || len(r.State) != 1 {
		t.Errorf("%+v", r)
	}
}

// Claim (docs/checkpoints.md): where tied embeddings lie in the files of the first and the
// last pipeline stage, a copy that has come apart is reported with its first element; alike
// they are not a difference.
func TestTiedCopies(t *testing.T) {
	theirs := golden.Dir(t, "checkpoint/gpt2-mcore-torch-tp2pp2") // by Megatron-LM
	dir := filepath.Join(t.TempDir(), "megatron")
	if err := os.CopyFS(dir, os.DirFS(theirs)); err != nil {
		t.Fatal(err)
	}
	if out, err := call(theirs, dir); err != nil || strings.Contains(out, "twice") {
		t.Errorf("%v\n%s", err, out)
	}
	found, _ := filepath.Glob(filepath.Join(dir, "*", "mp_rank_01_001", "model_optim_rng.pt"))
	if len(found) != 1 {
		t.Fatal("no file of the last stage")
	}
	other := editCopy(t, found[0])
	out, err := call(theirs, dir, "--json")
	var r report
	if bad := json.Unmarshal([]byte(out), &r); bad != nil || exitcode.CodeOf(err) != exitcode.Differs {
		t.Fatalf("%v, %v\n%s", bad, err, out)
	}
	if len(r.Tensors) != 0 || len(r.A.Apart) != 0 || len(r.B.Apart) != 1 {
		t.Fatalf("%+v", r)
	}
	c := r.B.Apart[0]
	if c.Name != "model.embedding.word_embeddings.weight" || c.Different != 1 || c.FirstB != "0.5" || c.First[0] != other || c.First[1] != 0 {
		t.Errorf("%+v", c)
	}
	if out, _ := call(theirs, dir); !strings.Contains(out, "stored twice in B with different values") {
		t.Error(out)
	}
}

// editCopy sets the first element of a second tensor-parallel rank's output layer to 0.5,
// and says which row of the complete tensor that is.
func editCopy(t *testing.T, path string) (row int64) {
	f, err := pickle.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	v, _ := f.Root.(*pickle.Dict).Get("model")
	model := v.(*pickle.Dict)
	v, ok := model.Get("output_layer.weight")
	if !ok {
		t.Fatal("the last stage has no copy")
	}
	copied := v.(*pickle.Tensor)
	raw := make([]byte, 4*checkpoint.Volume(copied.Shape))
	if err := copied.ReadAt(raw, 0); err != nil {
		t.Fatal(err)
	}
	binary.LittleEndian.PutUint32(raw, math.Float32bits(0.5))
	model.Set("output_layer.weight", pickle.Constant("F32", copied.Shape, raw))
	var out bytes.Buffer
	if _, err := pickle.Save(t.Context(), &out, "model_optim_rng", f.Root); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, out.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	return copied.Shape[0]
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

// Wrong calls are distinguished from differences.
func TestRefuses(t *testing.T) {
	for _, args := range [][]string{{tiny}, {tiny, tiny, "--rtol", "-1"}} {
		if _, err := call(args...); exitcode.CodeOf(err) != exitcode.Usage {
			t.Errorf("%q: %v", args, err)
		}
	}
	if _, err := call(tiny, "/nowhere"); exitcode.CodeOf(err) != exitcode.NoInput {
		t.Errorf("missing: %v", err)
	}
}
