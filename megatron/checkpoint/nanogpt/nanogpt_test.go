package nanogpt

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"monotron/internal/exitcode"
	"monotron/internal/golden"
	"monotron/internal/pickle"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/hf"
	"monotron/megatron/spec"
	"monotron/mpu"
)

func open(t *testing.T, path string) checkpoint.Source {
	t.Helper()
	src, err := Open(path, checkpoint.OpenOptions{Step: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = src.Close() })
	return src
}

// same compares every tensor of a with b's.
func same(t *testing.T, a, b checkpoint.Source) {
	t.Helper()
	for _, tensor := range a.Tensors() {
		want, err := checkpoint.ReadAll(a, tensor)
		if err != nil {
			t.Fatal(err)
		}
		got, err := checkpoint.ReadAll(b, tensor)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s differs, %v", tensor.Name, err)
		}
	}
}

// nanoGPT's own file under torch.compile's names holds the family's weights;
// what is written reads back completely: moments, step, iteration, activation.
func TestGoldenRoundTrip(t *testing.T) {
	root := golden.Dir(t, "checkpoint")
	src := open(t, filepath.Join(root, "gpt2-nanogpt-compiled"))
	family, err := hf.OpenSource(filepath.Join(root, "gpt2-hf-f32"), checkpoint.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer family.Close()
	same(t, family, src)
	if m := src.Info().Model; m.Activation != spec.GeluErf {
		t.Errorf("activation %s; nanoGPT computes the exact GELU", m.Activation)
	}
	for _, from := range []checkpoint.Source{src, family} {
		out := filepath.Join(t.TempDir(), "deep", "ckpt.pt")
		if _, err := Write(context.Background(), out, from, checkpoint.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		back := open(t, out)
		same(t, from, back)
		if back.State().Iteration != from.State().Iteration || back.Info().Model.Activation != from.Info().Model.Activation {
			t.Errorf("iteration %d, activation %s", back.State().Iteration, back.Info().Model.Activation)
		}
		if got, want := string(back.State().Extra[checkpoint.ExtraAdamSteps]), string(from.State().Extra[checkpoint.ExtraAdamSteps]); got != want {
			t.Errorf("%q steps, want %q", got, want)
		}
	}
}

// A model without biases reads as one whose biases are zero, moments too.
func TestNoBias(t *testing.T) {
	src := open(t, filepath.Join(golden.Dir(t, "checkpoint"), "gpt2-nobias-nanogpt"))
	if err := checkpoint.Check(src); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, tensor := range src.Tensors() {
		if !strings.HasSuffix(tensor.Name, ".bias") {
			continue
		}
		raw, err := checkpoint.ReadAll(src, tensor)
		if err != nil || len(bytes.Trim(raw, "\x00")) > 0 {
			t.Errorf("%s is not zero, %v", tensor.Name, err)
		}
		seen++
	}
	if seen != 3*13 {
		t.Errorf("%d biases, with their moments; a model of two layers has 39", seen)
	}
}

// An invalid nanoGPT checkpoint, or one not of the model it says, is refused.
func TestRefuses(t *testing.T) {
	args := func(heads int64) *pickle.Dict {
		return pickle.NewDict("n_layer", int64(1), "n_head", heads, "n_embd", int64(8), "block_size", int64(4), "vocab_size", int64(10), "bias", true)
	}
	for says, root := range map[string]pickle.Value{
		"of type list": &pickle.List{},
		`"model_args"`: pickle.NewDict("model", pickle.NewDict()),
		"n_head 3":     pickle.NewDict("model", pickle.NewDict(), "model_args", args(3)),
		"missing":      pickle.NewDict("model", pickle.NewDict(), "model_args", args(2)),
		"is not part of the model that model_args describes": pickle.NewDict("model", pickle.NewDict("odd", scalar(1)), "model_args", args(2)),
	} {
		path := filepath.Join(t.TempDir(), "ckpt.pt")
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pickle.Save(t.Context(), f, "ckpt", root); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		_, err = Open(path, checkpoint.OpenOptions{Step: -1})
		if err == nil || !strings.Contains(err.Error(), says) || exitcode.CodeOf(err) != exitcode.BadData {
			t.Errorf("%v (code %d), want it to say %q", err, exitcode.CodeOf(err), says)
		}
	}
}

// Claim (docs/checkpoints.md): a model whose linear layers have no biases is
// written with zeros for them, in its moments too, which nanoGPT's file
// gives back; one with biases stays as it is.
func TestZeroBiases(t *testing.T) {
	m := &spec.Model{NumLayers: 1, HiddenSize: 8, FFNHiddenSize: 32, NumAttentionHeads: 2, NumQueryGroups: 2, KVChannels: 4, VocabSize: 5,
		PaddedVocabSize: 5, MaxPositions: 4, Position: spec.PositionLearned, Normalization: spec.LayerNorm, NormEpsilon: 1e-5,
		Activation: spec.GeluErf, Tied: true, WindowLeft: -1}
	ones := func(global string) ([]float32, error) {
		return slices.Repeat([]float32{1}, 8*96), nil
	}
	src, added := checkpoint.ZeroBiases(hf.Values(m, hf.GPT2, ones))
	if !added || m.LinearBias {
		t.Fatalf("added %v, the model itself has biases: %v", added, m.LinearBias)
	}
	path := filepath.Join(t.TempDir(), "out")
	if _, err := Write(context.Background(), path, src, checkpoint.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	back := open(t, path)
	biases := 0
	for _, tensor := range back.Tensors() {
		raw := make([]byte, 4)
		if err := back.Read(tensor.Name, mpu.Piece{From: make([]int64, len(tensor.Shape)), Size: slices.Repeat([]int64{1}, len(tensor.Shape))}, raw); err != nil {
			t.Fatal(err)
		}
		zero := strings.HasSuffix(tensor.Name, ".bias") && strings.Contains(tensor.Name, "linear_")
		if string(raw) != map[bool]string{true: "\x00\x00\x00\x00", false: "\x00\x00\x80\x3f"}[zero] {
			t.Errorf("%s begins with % x", tensor.Name, raw)
		}
		if zero {
			biases++
		}
	}
	if biases != 4 {
		t.Errorf("%d biases of linear layers, want 4", biases)
	}
	if _, again := checkpoint.ZeroBiases(back); again {
		t.Error("biases were added to a model that has them")
	}
}
