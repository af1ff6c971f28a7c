package pretrain

import (
	"path/filepath"
	"testing"

	"monotron/internal/pickle"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/all"
)

// Claim (docs/checkpoints.md): torch's own AdamW finds its step in what we write for
// Megatron, each parameter a tensor of its own, or a common one; converted for
// Transformer Engine the states are without it. tests/proofs/checkpoints/adam.sh
// lets AdamW load and step.
func TestStatesHoldTheirStep(t *testing.T) {
	for _, c := range []struct {
		format checkpoint.Format
		flags  string
		path   []string // to the state
		file   string
	}{
		{checkpoint.MegatronTorch, "--ckpt-format torch", []string{"optimizer"}, "mp_rank_00/model_optim_rng.pt"},
		{checkpoint.MegatronTorch, "--ckpt-format torch --bf16", []string{"optimizer", "optimizer"}, "mp_rank_00/model_optim_rng.pt"},
		{checkpoint.MegatronTorchDist, "--ckpt-format torch_dist", []string{"optimizer"}, "common.pt"},
		{checkpoint.MegatronTorchDist, "--ckpt-format torch_dist --bf16", []string{"optimizer", "optimizer"}, "common.pt"},
	} {
		dir := t.TempDir()
		must(t, dir, tiny+someData+c.flags+" --train-iters 2 --save-interval 2 --save DIR/local")
		src, err := all.Open(filepath.Join(dir, "local"), checkpoint.OpenOptions{Step: -1})
		if err != nil {
			t.Fatal(err)
		}
		_, err = all.Write(t.Context(), c.format, filepath.Join(dir, "engine"), src, checkpoint.WriteOptions{TransformerImpl: "transformer_engine"})
		if src.Close(); err != nil {
			t.Fatal(err)
		}
		for impl, want := range map[string]bool{"local": true, "engine": false} {
			steps, states := stepsIn(t, filepath.Join(dir, impl, "iter_0000002", filepath.FromSlash(c.file)), c.path)
			if want && (steps == 0 || steps != states) || !want && steps != 0 {
				t.Errorf("%s, %s: %d of %d states hold their step", c.flags, impl, steps, states)
			}
		}
	}
}

// stepsIn counts the states of an optimizer, and those that hold a step of 2: in
// a sharded checkpoint all of them are one.
func stepsIn(t *testing.T, file string, path []string) (steps, states int) {
	t.Helper()
	f, err := pickle.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	v := f.Root
	for _, key := range path {
		v = entry(t, v, key)
	}
	state, ok := v.(*pickle.Dict).Get("state")
	if !ok {
		return 0, 0
	}
	if common, ok := state.(*pickle.Dict).Get("common_step"); ok {
		return isTwo(t, common), 1
	}
	for _, p := range state.(*pickle.Dict).Pairs {
		states++
		if step, ok := p.Value.(*pickle.Dict).Get("step"); ok {
			steps += isTwo(t, step)
		}
	}
	return steps, states
}

func entry(t *testing.T, v pickle.Value, key string) pickle.Value {
	t.Helper()
	d, ok := v.(*pickle.Dict)
	if !ok {
		t.Fatalf("no dictionary with %s, but %s", key, pickle.TypeName(v))
	}
	got, ok := d.Get(key)
	if !ok {
		t.Fatalf("no %s", key)
	}
	return got
}

// isTwo is 1 for a tensor without dimensions that holds a 2.
func isTwo(t *testing.T, v pickle.Value) int {
	t.Helper()
	x, ok := v.(*pickle.Tensor)
	if !ok || x.DType != "F32" || len(x.Shape) != 0 {
		t.Fatalf("%s is no scalar of float32", pickle.TypeName(v))
	}
	raw, err := x.Read()
	if err != nil {
		t.Fatal(err)
	}
	if string(raw) == "\x00\x00\x00\x40" {
		return 1
	}
	return 0
}
