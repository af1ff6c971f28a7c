package tests

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Claim (docs/plan.md): the bytes that `plan run` says for each rank are those that the
// same command line's JSON log then has.
func TestPlanIsWhatTheRunHolds(t *testing.T) {
	bin, dir := program(t), t.TempDir()
	// A model that holds more than the MiB which processes exchange before their first step.
	const line = "pretrain_gpt --num-layers 4 --hidden-size 96 --num-attention-heads 4 --seq-length 32 --max-position-embeddings 32 --micro-batch-size 2 --global-batch-size 24 " +
		"--train-iters 3 --lr 1e-3 --tokenizer-type NullTokenizer --vocab-size 70 --mock-data --eval-iters 1 --eval-interval 2 --log-interval 1 --num-workers 1 "
	for name, layout := range map[string]string{
		"one":       "--bf16",
		"pipeline":  "--world-size 4 --pipeline-model-parallel-size 2 --tensor-model-parallel-size 2 --sequence-parallel --recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
		"sharded":   "--world-size 4 --bf16 --pipeline-model-parallel-size 2 --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather --log-memory",
		"processes": "--bf16 --tensor-model-parallel-size 2",
	} {
		log := filepath.Join(dir, name+".jsonl")
		words := strings.Fields(line + layout)
		run := append(slices.Clone(words), "--log-jsonl", log)
		if name == "processes" {
			run = append([]string{"launch", "--nproc-per-node", "2", "--"}, run...)
			words = append(words, "--world-size", "2")
		}
		if out, err := exec.Command(filepath.Join(bin, "monotron"), run...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		cmd := exec.Command(filepath.Join(bin, "monotron"), append([]string{"plan", "run", "--json"}, words...)...)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var plan struct {
			Ranks []struct {
				Peak int64 `json:"peak_bytes"`
			} `json:"ranks"`
		}
		if err := json.Unmarshal(out, &plan); err != nil {
			t.Fatal(err)
		}
		var planned []int64
		for _, r := range plan.Ranks {
			planned = append(planned, r.Peak)
		}
		if kept := keptAtEnd(t, log); !slices.Equal(planned, kept) {
			t.Errorf("%s: planned %v, held %v", name, planned, kept)
		}
	}
}

// keptAtEnd is every rank's memory in the last step of a JSON log.
func keptAtEnd(t *testing.T, log string) []int64 {
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	var kept []int64
	for line := range bytes.Lines(text) {
		var step struct {
			Memory int64   `json:"memory_bytes"`
			Ranks  []int64 `json:"rank_memory_bytes"`
		}
		if err := json.Unmarshal(line, &step); err != nil {
			t.Fatal(err)
		}
		if n := len(step.Ranks); n > 0 {
			if kept = step.Ranks; step.Memory != kept[n-1] {
				t.Errorf("%s: the last rank has %d bytes, and %d", log, step.Memory, kept[n-1])
			}
		}
	}
	return kept
}
