package torch

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monotron/internal/pickle"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/compare"
)

// older rewrites a rank's file with the names of Megatron-LM before Megatron Core.
func older(t *testing.T, path string, version float64) {
	t.Helper()
	f, err := pickle.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	root := f.Root.(*pickle.Dict)
	v, _ := root.Get("model")
	embedding, encoder := &pickle.Dict{}, &pickle.Dict{}
	names := strings.NewReplacer("self_attention.linear_qkv.", "attention.query_key_value.", "self_attention.linear_proj.", "attention.dense.",
		"pre_mlp_layernorm.", "post_attention_layernorm.", "linear_fc1.", "dense_h_to_4h.", "linear_fc2.", "dense_4h_to_h.")
	for _, p := range v.(*pickle.Dict).Pairs {
		key := p.Key.(string)
		if _, ok := p.Value.(*pickle.Tensor); !ok || strings.HasSuffix(key, "_extra_state") {
			continue
		}
		if rest, ok := strings.CutPrefix(key, "decoder."); ok {
			encoder.Set(names.Replace(rest), p.Value)
		} else if rest, ok := strings.CutPrefix(key, "embedding."); ok {
			table, of, _ := strings.Cut(rest, ".")
			embedding.Set(table, pickle.NewDict(of, p.Value))
		}
	}
	root.Set("model", pickle.NewDict(before, pickle.NewDict("embedding", embedding, "transformer", encoder)))
	root.Set("checkpoint_version", version)
	var out bytes.Buffer
	if _, err := pickle.Save(t.Context(), &out, "model_optim_rng", root); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if err := os.WriteFile(path, out.Bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
}

// Claim: a save under the names of Megatron-LM before Megatron Core has the weights of
// the same save under today's, and says that the optimizer is left out; one of an
// order of rows that no longer is, is refused.
func TestBeforeCore(t *testing.T) {
	today, dir := copied(t), copied(t)
	ranks := []string{filepath.Join(dir, iteration, "mp_rank_00", rankFile), filepath.Join(dir, iteration, "mp_rank_01", rankFile)}
	for _, path := range ranks {
		older(t, path, 3)
	}
	a, err := Open(today, checkpoint.OpenOptions{Step: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := Open(dir, checkpoint.OpenOptions{Step: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := checkpoint.Check(b); err != nil {
		t.Error(err)
	}
	rows, err := compare.Tensors(checkpoint.WeightsOnly(a), checkpoint.WeightsOnly(b), compare.Options{})
	if err != nil || len(rows) != 16 {
		t.Fatalf("%d tensors, %v", len(rows), err)
	}
	for _, r := range rows {
		if !r.Equal() {
			t.Errorf("%s differs", r.Name)
		}
	}
	if notes := strings.Join(b.Info().Notes, "\n"); !strings.Contains(notes, "before Megatron Core") {
		t.Errorf("notes %q", notes)
	}
	old := copied(t)
	older(t, filepath.Join(old, iteration, "mp_rank_00", rankFile), 1)
	if _, err := Open(old, checkpoint.OpenOptions{Step: -1}); err == nil || !strings.Contains(err.Error(), "a different order") {
		t.Errorf("version 1: %v", err)
	}
}
