package gguf

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"monotron/internal/exitcode"
	"monotron/internal/gguf"
	"monotron/megatron/checkpoint"
)

// rewritten is a file of a row's small model with some keys changed; nil removes one.
func rewritten(t *testing.T, f *family, changed map[string]any) string {
	t.Helper()
	src, _ := sourceOf(t, f)
	w := &writing{src: src, o: checkpoint.WriteOptions{Family: f.hf, Quantization: "f32"}}
	if err := w.plan(); err != nil {
		t.Fatal(err)
	}
	if err := w.tokenizer(); err != nil {
		t.Fatal(err)
	}
	pairs := w.metadata
	for key, value := range changed {
		key = f.arch + "." + key
		pairs = slices.DeleteFunc(pairs, func(p gguf.Pair) bool { return p.Key == key })
		if value != nil {
			pairs = append(pairs, gguf.Pair{Key: key, Value: value})
		}
	}
	path := filepath.Join(t.TempDir(), "x.gguf")
	if _, err := gguf.Write(context.Background(), path, pairs, w.outputs()); err != nil {
		t.Fatal(err)
	}
	return path
}

// Claim: metadata of state-space scans that contradicts itself, is out of range or has another type is refused, and the
// first line names the key, or config.json's name of it. Source: the small model's own file, in which one key is changed.
func TestScanMetadata(t *testing.T) {
	all := []string{"granitehybrid", "nemotron_h", "nemotron_h_moe", "mamba2"}
	hybrids := all[:3]
	for _, c := range []struct {
		archs []string
		key   string
		value any
		says  string
	}{
		{all, "ssm.group_count", uint32(0), "groups is 0"},
		{all, "ssm.group_count", uint32(3), "groups 3"},
		{all, "ssm.group_count", "2", "ssm.group_count is STRING"},
		{all, "ssm.inner_size", uint32(0), "ssm.inner_size must be an integer of at least 1"},
		{all, "ssm.inner_size", uint32(101), "ssm.inner_size 101"},
		{all, "ssm.inner_size", nil, "ssm.inner_size"},
		{all, "ssm.time_step_rank", uint32(0), "ssm.time_step_rank must be an integer of at least 1"},
		{all, "ssm.time_step_rank", nil, "ssm.time_step_rank must be an integer of at least 1"},
		{all, "ssm.conv_kernel", uint32(0), "is 0; it must be from 1"},
		{all, "ssm.conv_kernel", uint32(1 << 20), "is 1048576; it must be from 1"},
		{all, "ssm.state_size", uint32(1 << 31), "ssm.state_size is 2147483648"},
		{all, "ssm.state_size", uint32(1 << 24), "a convolution has"},
		{all, "ssm.dt_b_c_rms", true, "ssm.dt_b_c_rms is not supported"},
		{[]string{"granitehybrid", "mamba2"}, "embedding_length", uint32(0), "embedding_length 0"},
		{hybrids[1:], "embedding_length", uint32(0), "hidden_size is 0"},
		{hybrids, "attention.head_count_kv", []int32{2, 0}, "attention.head_count_kv has 2 numbers; it must have one for each of the 4 layers"},
		{hybrids, "attention.head_count_kv", []int32{0, 0, 0, 0, 2}, "attention.head_count_kv has 5 numbers; it must have one for each of the 4 layers"},
		{hybrids, "attention.head_count_kv", []int32{0, 0, 2, -1}, "attention.head_count_kv"},
		{hybrids, "attention.head_count_kv", []int32{4, 0, 2, 0}, "attention.head_count_kv is 2 in layer 2, but 4 in an earlier layer"},
		{hybrids, "attention.head_count", uint32(0), "num_attention_heads is 0"},
		{hybrids, "rope.scaling.finetuned", uint32(0), "rope.scaling.finetuned is UINT32"},
		{hybrids, "block_count", uint32(1 << 20), "each of the 1048576 layers"},
		{hybrids[1:], "rope.scaling.finetuned", true, "rope.scaling.finetuned is not false"},
		{hybrids[1:], "feed_forward_length", []int32{0, 96, 96, 0}, "layer 2 has both"},
		{hybrids[1:], "feed_forward_length", []int32{0, 96}, "feed_forward_length has 2 numbers; it must have one for each of the 4 layers"},
		{hybrids[1:], "feed_forward_length", uint32(0), "the metadata describes a model with the tensor \"blk.1.ssm_"},
		{hybrids[:1], "expert_shared_feed_forward_length", uint32(5), "without experts both are the width"},
		{hybrids[2:], "expert_count", uint32(0), "expert_count is 0"},
		{hybrids[2:], "expert_used_count", uint32(9), "num_experts_per_tok is 9"},
		{hybrids[2:], "expert_feed_forward_length", uint32(33), "both are the width of an expert"},
		{hybrids[2:], "expert_shared_count", uint32(2), "expert_shared_count is 2"},
		{hybrids[2:], "expert_group_count", uint32(3), "n_group 3"},
		{hybrids[2:], "expert_gating_func", uint32(1), "expert_gating_func is 1"},
		{all[3:], "attention.head_count", uint32(4), "attention.head_count is 4"},
		{all[3:], "feed_forward_length", uint32(4), "feed_forward_length is 4"},
	} {
		for _, arch := range c.archs {
			at := slices.IndexFunc(families, func(f family) bool { return f.arch == arch })
			src, err := Open(rewritten(t, &families[at], map[string]any{c.key: c.value}), checkpoint.OpenOptions{})
			if err == nil {
				src.Close()
			}
			if exitcode.CodeOf(err) != exitcode.BadData {
				t.Errorf("%s with %s %v: %v", arch, c.key, c.value, err)
			} else if first, _, _ := strings.Cut(err.Error(), "\n"); !strings.Contains(first, c.says) {
				t.Errorf("%s with %s %v: %v, want %q", arch, c.key, c.value, err, c.says)
			}
		}
	}
}

// Claim: a layer that predicts further tokens is behind the others in lists of layers, as llama.cpp's converter writes it, and is left
// out.
func TestScanLayersAhead(t *testing.T) {
	at := slices.IndexFunc(families, func(f family) bool { return f.arch == "nemotron_h_moe" })
	src, err := Open(rewritten(t, &families[at], map[string]any{"block_count": uint32(5), "nextn_predict_layers": uint32(1),
		"attention.head_count_kv": []int32{0, 0, 2, 0, 2}, "feed_forward_length": []int32{0, 32, 0, 0, 32}}), checkpoint.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	if m := src.Info().Model; m.Hybrid() != "ME*M" || m.NumLayers != 4 {
		t.Errorf("%s of %d layers", m.Hybrid(), m.NumLayers)
	}
}

// Claim: no mutation of the metadata of a model with state-space scans makes reading it panic or take memory without bound. The
// seed is fixed; the files are small models of our own.
func TestMutatedScanModels(t *testing.T) {
	const most = 64 << 20
	r, rounds := rand.New(rand.NewPCG(41, 3)), 150
	if testing.Short() {
		rounds = 40
	}
	for _, arch := range []string{"granitehybrid", "nemotron_h", "nemotron_h_moe", "mamba2"} {
		at := slices.IndexFunc(families, func(f family) bool { return f.arch == arch })
		good, err := os.ReadFile(rewritten(t, &families[at], nil))
		if err != nil {
			t.Fatal(err)
		}
		opened := openMutations(t, rounds, most, func() []byte {
			// Numbers of the metadata, in its first bytes.
			bad := slices.Clone(good)
			for range 1 + r.IntN(2) {
				spot := 24 + r.IntN(1600)
				switch r.IntN(3) {
				case 0:
					bad[spot] ^= 1 << r.IntN(8)
				case 1:
					binary.LittleEndian.PutUint32(bad[spot:], []uint32{0, 1, 3, 1 << 20, 1<<31 - 1, 1<<32 - 1}[r.IntN(6)])
				default:
					binary.LittleEndian.PutUint64(bad[spot:], r.Uint64())
				}
			}
			return bad
		})
		if opened == rounds {
			t.Errorf("%s: every mutation opens", arch)
		}
	}
}
