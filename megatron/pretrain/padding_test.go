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

// Claim: what the losses of routers weigh in tuning depends on their coefficients, not on how much of the rows is
// learned: gradients of the same tokens differ by no more than those of the model's loss, whether all tokens but the
// first are learned or one, under every layout.
func TestRouterLossesWeighAsTheirCoefficients(t *testing.T) {
	dir := t.TempDir()
	random := rand.New(rand.NewPCG(3, 4))
	var all, one strings.Builder
	for range 4 {
		var ids []string
		for range 32 {
			ids = append(ids, fmt.Sprint(random.IntN(50)))
		}
		text := strings.Join(ids, ",")
		fmt.Fprintf(&all, "{\"input_ids\": [%s]}\n", text)
		fmt.Fprintf(&one, "{\"input_ids\": [%s], \"labels\": [%s%s]}\n", text, strings.Repeat("-100,", 31), ids[31])
	}
	for name, rows := range map[string]string{"all": all.String(), "one": one.String()} {
		if err := os.WriteFile(filepath.Join(dir, name+".jsonl"), []byte(rows), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	line := "--num-layers 2 --hidden-size 16 --num-attention-heads 2 --max-position-embeddings 32 --seq-length 32 --micro-batch-size 1 --global-batch-size 4 " +
		"--train-iters 1 --lr 1e-3 --tokenizer-type NullTokenizer --vocab-size 50 --eval-iters 0 --num-experts 4 --moe-router-topk 2 --disable-bias-linear " +
		"--finetune-packing none --clip-grad 0 --no-data-shuffle --init-method-std 0.2 --log-jsonl DIR/log --finetune-data DIR/"
	norm := func(flags string) float64 {
		must(t, dir, line+flags)
		file := filepath.Join(dir, "log")
		defer os.Remove(file)
		return float64(*stepsOf(t, file)[0].GradNorm)
	}
	for _, flags := range []string{"--moe-aux-loss-coeff 1000", "--moe-router-load-balancing-type seq_aux_loss --moe-aux-loss-coeff 1000", "--moe-z-loss-coeff 1000"} {
		want, own := norm("all.jsonl "+flags), norm("all.jsonl")+norm("one.jsonl")
		if want < 8*own {
			t.Fatalf("%s: the norm %v says nothing beside %v of the model's loss", flags, want, own)
		}
		for _, run := range []string{"one.jsonl ", "one.jsonl --world-size 2 ", "one.jsonl --world-size 2 --context-parallel-size 2 ",
			"one.jsonl --world-size 2 --tensor-model-parallel-size 2 --sequence-parallel "} {
			if got := norm(run + flags); math.Abs(got-want) > own {
				t.Errorf("%s%s: norm %v, all learned: %v; of the model's loss %v", run, flags, got, want, own)
			}
		}
	}
}
