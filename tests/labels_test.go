package tests

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Claim (docs/finetuning.md): inspect samples --labels takes the tokenizer from --load alone, as finetune does, also one
// that is a number of tokens; a file without rows is bad data for both.
func TestLabelsOfACheckpoint(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for name, text := range map[string]string{"rows.jsonl": `{"input_ids": [1, 2], "labels": [1, 2]}`, "empty.jsonl": ""} {
		if err := os.WriteFile(at(name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		line, says string
		code       int
	}{
		{"pretrain_gpt --num-layers 1 --hidden-size 8 --num-attention-heads 1 --seq-length 8 --max-position-embeddings 8 --micro-batch-size 1 --train-iters 1 --lr 1e-3 --eval-iters 0 " +
			"--mock-data --tokenizer-type NullTokenizer --vocab-size 10 --save " + at("model"), "iteration        1/       1", 0},
		{"inspect samples --labels --load " + at("model") + " --finetune-data " + at("rows.jsonl"), "line 1: 2 tokens, 1 of them learned", 0},
		{"inspect samples --labels --load " + at("model") + " --finetune-data " + at("empty.jsonl"), at("empty.jsonl") + " has no rows", 65},
		{"finetune --model " + at("model") + " --output " + at("tuned") + " --data " + at("empty.jsonl"), at("empty.jsonl") + " has no rows", 65},
	} {
		cmd := exec.Command(filepath.Join(program(t), "monotron"), strings.Fields(c.line)...)
		text, _ := cmd.CombinedOutput() // its code says it
		if cmd.ProcessState.ExitCode() != c.code || !strings.Contains(string(text), c.says) {
			t.Errorf("%s: code %d, want %d, %s: %s", c.line, cmd.ProcessState.ExitCode(), c.code, c.says, text)
		}
	}
}
