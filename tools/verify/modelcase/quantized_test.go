package modelcase

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"monotron/csrc/cpu"
	"monotron/csrc/device"
	"monotron/internal/golden"
	"monotron/internal/safetensors"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/hf"
)

// Claim (golden/qlora: bitsandbytes 0.50.2 and PEFT 0.21 in float64): over weights of NF4, as
// transformers stores them and as --quantize-base makes them of their base, the logits, the
// gradients of an adapter, eight steps of AdamW and the adapter after them are PEFT's.
func TestAdaptersOverNF4(t *testing.T) {
	for _, name := range []string{"llama-f32-single", "llama-f32-double", "llama-f32-double-dora"} {
		for _, from := range []string{"base", "quantised"} {
			t.Run(name+"/"+from, func(t *testing.T) {
				c := adapterCase{dir: golden.Dir(t, "qlora", name), without: "logits", with: "logits_with_adapter"}
				golden.ReadJSON(t, filepath.Join(c.dir, "case.json"), &c)
				c.adapter, c.base = filepath.Join(c.dir, "adapter"), dequantisedCase(t, c.dir, from, name != "llama-f32-single")
				c.check(t, openRef)
				if d, err := cpu.Open(); err == nil {
					d.Close()
					c.check(t, func() (*device.Device, error) { return cpu.Open() })
				}
			})
		}
	}
}

// dequantisedCase is a case of the model whose weights are the values of NF4.
func dequantisedCase(t *testing.T, qlora, from string, double bool) string {
	t.Helper()
	src, err := hf.OpenSource(filepath.Join(qlora, from), checkpoint.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	full, err := hf.Quantized(src, hf.NF4, double)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "case")
	if _, err := hf.Write(t.Context(), dir, full, checkpoint.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	writeBatches(t, filepath.Join(qlora, "batches.safetensors"), filepath.Join(dir, "batches.safetensors"))
	config, err := os.ReadFile(filepath.Join(dir, hf.ConfigName))
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`{"name": "nf4", "architecture": "llama", "weights": %q, "config": %s, "training": {"train_iters": 8, "lr": 0.005, "min_lr": 0.005,
		"lr_decay_style": "constant", "lr_decay_iters": 8, "adam_beta1": 0.9, "adam_beta2": 0.999, "adam_eps": 1e-8, "weight_decay": 0.01,
		"global_batch_size": 2, "micro_batch_size": 2, "seq_length": 16}, "expected": {}, "tolerance": {}}`, safetensors.SingleName, config)
	if err := os.WriteFile(filepath.Join(dir, "case.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// writeBatches copies batches and adds a loss mask of ones.
func writeBatches(t *testing.T, from, to string) {
	t.Helper()
	f, err := safetensors.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var infos []safetensors.Info
	for _, name := range []string{"tokens", "labels", "loss_mask"} {
		info, ok := f.Info(name)
		if !ok {
			info, _ = f.Info("tokens")
			info.DType = "F32"
		}
		infos = append(infos, safetensors.Info{Name: name, DType: info.DType, Shape: info.Shape})
	}
	_, err = safetensors.WriteFile(t.Context(), to, infos, nil, func(i int, first, _ int64, dst []byte) error {
		if infos[i].DType != "F32" {
			return f.ReadAt(infos[i].Name, dst, first*int64(len(dst)))
		}
		for k := range len(dst) / 4 {
			copy(dst[4*k:], []byte{0, 0, 0x80, 0x3f}) // 1
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
