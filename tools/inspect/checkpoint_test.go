package inspect

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/all"
	"monotron/megatron/checkpoint/native"
	"monotron/mpu"
)

// saved writes two checkpoints of a weight and a moment.
func saved(t *testing.T, dir string) {
	d := ref.Open()
	t.Cleanup(d.Arena.Close)
	store := func(name string, values ...float32) mpu.Stored {
		n := []int64{int64(len(values))}
		buf := d.Arena.Alloc(device.Parameters, device.F32, n...)
		device.WriteSlice(d, buf, values)
		return mpu.Stored{Name: name, Global: n, Tensor: buf, Pieces: []mpu.Piece{{From: []int64{0}, Size: n}}, Write: true}
	}
	list := []mpu.Stored{store("w", 3, -4), store("optimizer.exp_avg.w", 1, float32(math.NaN()), float32(math.Inf(-1)))}
	for _, step := range []int64{10, 20} {
		st := native.State{Iteration: step, Config: json.RawMessage(`{"lr":0.5,"data_path":["x"]}`), Version: "v1"}
		if _, err := native.Save(context.Background(), dir, st, list, d, native.SaveOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func run(args ...string) (string, error) {
	var out bytes.Buffer
	app := &cli.App{Writer: &out, Commands: []*cli.Command{checkpointCommand()}, ExitErrHandler: func(*cli.Context, error) {}}
	err := app.Run(append([]string{"inspect", "checkpoint"}, args...))
	return out.String(), err
}

// The text names state, config and each tensor's norm, extremes, NaNs and checksum.
func TestInspectText(t *testing.T) {
	dir := t.TempDir()
	saved(t, dir)
	out, err := run("--verify", dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range [][]string{
		{"iteration", "20"}, {"config.lr", "0.5"}, {"all", "iterations", "[10", "20]"}, {"written", "by", "monotron", "v1"},
		{"w", "F32", "[2]", "1", "5", "-4", "3", "0", "0", "ok"},
		{"optimizer.exp_avg.w", "F32", "[3]", "1", "1", "1", "1", "1", "1", "ok"},
	} {
		if !hasLine(out, line) {
			t.Errorf("no line %v in\n%s", line, out)
		}
	}
	if out, err := run("--headers-only", "--step", "10", dir); err != nil || !hasLine(out, []string{"w", "F32", "[2]", "1", "-", "-", "-", "0", "0", "unread"}) {
		t.Errorf("%v\n%s", err, out)
	}
}

func hasLine(text string, words []string) bool {
	for line := range strings.Lines(text) {
		if strings.Join(strings.Fields(line), " ") == strings.Join(words, " ") {
			return true
		}
	}
	return false
}

// The JSON holds the same; the weights' hash does not depend on the moments or
// the iteration.
func TestInspectJSON(t *testing.T) {
	dir := t.TempDir()
	saved(t, dir)
	hashes := map[string]bool{}
	for _, step := range []string{"10", "20"} {
		out, err := run("--json", "--verify", "--step", step, dir)
		if err != nil {
			t.Fatal(err)
		}
		var l listing
		if err := json.Unmarshal([]byte(out), &l); err != nil {
			t.Fatal(err)
		}
		if len(l.Tensors) != 2 || *l.Tensors[0].Norm != 5 || l.Tensors[1].NaN != 1 || l.Elements != 5 || l.Bytes != 20 || len(l.WeightsHash) != 64 {
			t.Errorf("%s", out)
		}
		hashes[l.WeightsHash] = true
	}
	if len(hashes) != 1 {
		t.Errorf("hashes %v", hashes)
	}
}

// Damage shows in the list, and with --verify in the exit code.
func TestInspectDamage(t *testing.T) {
	dir := t.TempDir()
	saved(t, dir)
	path := filepath.Join(dir, "iter_0000020", "rank_00000.safetensors")
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	raw[len(raw)-1] ^= 1
	if err := os.WriteFile(path, raw, 0o666); err != nil {
		t.Fatal(err)
	}
	out, err := run(dir)
	if err != nil || !strings.Contains(out, "DAMAGED") || !hasLine(out, []string{"optimizer.exp_avg.w", "F32", "[3]", "1", "-", "-", "-", "0", "0", "wrong"}) {
		t.Errorf("%v\n%s", err, out)
	}
	if _, err := run("--verify", dir); exitcode.CodeOf(err) != exitcode.IO || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v", err)
	}
}

// Hugging Face folders and single files, from a fixture transformers wrote.
func TestInspectForeign(t *testing.T) {
	const folder = "../../megatron/checkpoint/hf/testdata/gpt2-tiny"
	for path, format := range map[string]string{folder: "hf", filepath.Join(folder, "model.safetensors"): "safetensors"} {
		out, err := run(path)
		if err != nil || !hasLine(out, []string{"format", format}) || !hasLine(out, []string{"transformer.wte.weight", "F32", "[32,8]", "1", "7.47545", "-1.3231", "1.18846", "0", "0", "none"}) || strings.Contains(out, "cannot load") {
			t.Errorf("%s: %v\n%s", path, err, out)
		}
	}
}

// Claim (docs/checkpoints.md): the format has the name that convert --to takes, and Megatron's formats say which program
// wrote them, also after another conversion.
func TestInspectSaysWhoWrote(t *testing.T) {
	path := "../../megatron/checkpoint/hf/testdata/gpt2-tiny"
	for _, format := range []checkpoint.Format{checkpoint.MegatronTorchDist, checkpoint.MegatronTorch} {
		src, err := all.Open(path, checkpoint.OpenOptions{Step: -1})
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(t.TempDir(), "out")
		_, err = all.Write(t.Context(), format, to, src, checkpoint.WriteOptions{})
		if err = errors.Join(err, src.Close()); err != nil {
			t.Fatal(err)
		}
		path = to
		out, err := run("--headers-only", path)
		if err != nil || !hasLine(out, []string{"format", string(format)}) || !hasLine(out, []string{"written", "by", "monotron"}) {
			t.Errorf("%s: %v\n%s", format, err, out)
		}
	}
}

func TestInspectWithoutCheckpoint(t *testing.T) {
	for _, path := range []string{t.TempDir(), filepath.Join(t.TempDir(), "none")} {
		if _, err := run(path); exitcode.CodeOf(err) != exitcode.NoInput || !strings.Contains(err.Error(), path) {
			t.Errorf("got %v", err)
		}
	}
	if _, err := run(); exitcode.CodeOf(err) != exitcode.Usage {
		t.Errorf("got %v", err)
	}
	if _, err := run("--verify", "--headers-only", "x"); exitcode.CodeOf(err) != exitcode.Usage {
		t.Errorf("got %v", err)
	}
}
