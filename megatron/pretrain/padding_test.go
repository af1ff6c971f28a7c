package pretrain

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monotron/internal/golden"
)

// Claim: how far rows are padded changes neither losses nor gradients, under no layout and with dropout of
// adapters: at 63 positions nothing is cut, at 128 micro-batches are cut to 64.
func TestPaddingChangesNothing(t *testing.T) {
	dir := t.TempDir()
	baseFolder(t, dir, golden.Dir(t, "sft"), filepath.Join(golden.Dir(t, "chat"), "tokenizer.json"))
	var rows strings.Builder
	random := rand.New(rand.NewPCG(1, 2))
	for range 8 {
		var ids []string
		for range 5 + random.IntN(55) {
			ids = append(ids, fmt.Sprint(5+random.IntN(200)))
		}
		fmt.Fprintf(&rows, "{\"input_ids\": [%s]}\n", strings.Join(ids, ","))
	}
	if err := os.WriteFile(filepath.Join(dir, "rows.jsonl"), []byte(rows.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	line := "--finetune-data DIR/rows.jsonl --micro-batch-size 2 " + tuneLine + "--train-iters 3 "
	for name, flags := range map[string]string{
		"one rank": "", "adapter": "--lora-rank 4 --lora-dropout 0.2 ", "tensors": "--world-size 2 --tensor-model-parallel-size 2 --sequence-parallel ",
		"context": "--world-size 2 --context-parallel-size 2 ", "data": "--world-size 2 ", "pipeline": "--world-size 2 --pipeline-model-parallel-size 2 ",
	} {
		length := "63"
		if name == "tensors" || name == "context" {
			length = "60" // which these ranks divide, and no row is longer
		}
		must(t, dir, line+flags+"--seq-length "+length+" --log-jsonl DIR/whole")
		must(t, dir, line+flags+"--seq-length 128 --log-jsonl DIR/cut")
		full, cut := stepsOf(t, filepath.Join(dir, "whole")), stepsOf(t, filepath.Join(dir, "cut"))
		for i := range full {
			a, b := full[i], cut[i]
			if math.Abs(float64(*a.LMLoss-*b.LMLoss)) > 1e-6 || math.Abs(float64(*a.GradNorm / *b.GradNorm - 1)) > 1e-6 {
				t.Errorf("%s, step %d: loss %v, gradient norm %v; at %s positions %v, %v", name, i+1, *b.LMLoss, *b.GradNorm, length, *a.LMLoss, *a.GradNorm)
			}
		}
		if len(full) != 3 || len(cut) != 3 {
			t.Errorf("%s: %d and %d steps", name, len(full), len(cut))
		}
		for _, f := range []string{"whole", "cut"} {
			if err := os.Remove(filepath.Join(dir, f)); err != nil {
				t.Fatal(err)
			}
		}
	}
}
