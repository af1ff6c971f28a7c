package tests

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"monotron/internal/drawn"
)

// What processors.sh trains on arm64 too, shorter: models that use most ops between them.
var processorModels = map[string]string{
	"gpt2":  "--attention-dropout 0.1 --hidden-dropout 0.1",
	"llama": "--swiglu --normalization RMSNorm --group-query-attention --num-query-groups 2 --position-embedding-type rope --disable-bias-linear --ffn-hidden-size 64 --untie-embeddings-and-output-weights",
	"mixture": "--swiglu --normalization RMSNorm --position-embedding-type rope --disable-bias-linear --num-experts 4 --moe-ffn-hidden-size 32 --moe-router-topk 2 " +
		"--moe-router-load-balancing-type seq_aux_loss --moe-aux-loss-coeff 0.01 --moe-z-loss-coeff 0.001",
	"bf16": "--bf16",
}

// Claim (docs/invariance.md): with --layout-invariant a run has the same weights after each step whatever
// vectors the processor has. Without the flag it has not, so that equal hashes prove something.
func TestProcessorsTrainTheSameWeights(t *testing.T) {
	if out, err := exec.Command("go", "env", "CGO_ENABLED").Output(); err != nil || strings.TrimSpace(string(out)) != "1" {
		t.Skipf("without cgo there is no device cpu: %v", err)
	}
	if raw, err := os.ReadFile("/proc/cpuinfo"); err != nil || !strings.Contains(string(raw), " avx2 ") {
		t.Skipf("this processor has portable vectors alone: %v", err)
	}
	bin := program(t)
	for _, name := range drawn.Part(t, slices.Sorted(maps.Keys(processorModels)), 2) {
		model := processorModels[name]
		t.Run(name, func(t *testing.T) {
			want := hashesWith(t, bin, "", model+" --layout-invariant")
			for _, isa := range []string{"avx2", "portable"} {
				if got := hashesWith(t, bin, isa, model+" --layout-invariant"); !slices.Equal(got, want) {
					t.Errorf("MONOTRON_ISA=%s: hashes %v, not %v", isa, got, want)
				}
			}
			if slices.Equal(hashesWith(t, bin, "", model), hashesWith(t, bin, "portable", model)) {
				t.Error("without --layout-invariant portable vectors have the same bits")
			}
		})
	}
}

// hashesWith is the hash of all weights after each of three steps of a model, limited to some vectors.
func hashesWith(t *testing.T, bin, isa, model string) (hashes []string) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "steps.jsonl")
	line := "--device cpu --mock-data --tokenizer-type NullTokenizer --vocab-size 200 --num-layers 2 --hidden-size 32 --num-attention-heads 4 --seq-length 32 " +
		"--max-position-embeddings 32 --global-batch-size 2 --micro-batch-size 1 --train-iters 3 --lr 1e-3 --lr-decay-style cosine --clip-grad 0.5 --eval-iters 0 --log-weights-hash 1 --no-plan"
	cmd := exec.Command(filepath.Join(bin, "pretrain_gpt"), append(strings.Fields(line+" "+model), "--log-jsonl", log)...)
	cmd.Env = append(os.Environ(), "MONOTRON_ISA="+isa)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	raw, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		var step struct {
			Hash string `json:"weights_hash"`
		}
		if err := json.Unmarshal([]byte(line), &step); err != nil {
			t.Fatal(err)
		}
		if step.Hash != "" {
			hashes = append(hashes, step.Hash)
		}
	}
	if len(hashes) != 3 {
		t.Fatalf("%d hashes of 3 steps", len(hashes))
	}
	return hashes
}
