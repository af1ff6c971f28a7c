package tests

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"monotron/internal/drawn"
	"monotron/internal/golden"
)

// tuned is a tuning of 12 steps of a small Llama on two ranks, whatever it learns from.
const tuned = "--load base --resume-from-save --seq-length 64 --train-iters 12 --lr 1e-3 --lr-decay-style cosine --min-lr 1e-4 --seed 7 --micro-batch-size 2 --global-batch-size 8 --log-interval 1 " +
	"--device ref --cpu-threads 1 "

// tunings are what each test adds to that.
var tunings = map[string]string{
	"LoRA":                      "--finetune-data rows.jsonl --lora-rank 4 --use-distributed-optimizer ",
	"DoRA":                      "--finetune-data rows.jsonl --lora-rank 4 --use-dora ",
	"LoRA over NF4":             "--finetune-data rows.jsonl --lora-rank 4 --quantize-base nf4 --double-quant ",
	"LoRA without its base":     "--finetune-data rows.jsonl --lora-rank 4 --save-adapter-only ",
	"weights next to LoRA":      "--finetune-data rows.jsonl --lora-rank 4 --lora-target-modules q_proj,down_proj --lora-modules-to-save norm --lora-train-bias all ",
	"preferences":               "--finetune-data pairs.jsonl --tuning dpo ",
	"preferences, LoRA":         "--finetune-data pairs.jsonl --tuning dpo --lora-rank 4 ",
	"preferences, another base": "--finetune-data pairs.jsonl --tuning kto --ref-load reference ",
	"rewards":                   "--finetune-data prompts.jsonl --tuning grpo --lora-rank 4 --grpo-group-size 4 --grpo-iterations 4 --max-completion-length 12 --reward-pattern a --grpo-kl-beta 0.05 ",
}

// TestMemoryCheckpointsOfTuning starts tunings that keep checkpoints in memory, and kills one of two hosts.
func TestMemoryCheckpointsOfTuning(t *testing.T) {
	if testing.Short() {
		t.Skip("many runs of processes: not with -short")
	}
	bin := program(t)
	for _, name := range drawn.Part(t, slices.Sorted(maps.Keys(tunings)), (len(tunings)+1)/2) {
		t.Run(name, func(t *testing.T) {
			l := newLaunching(t, bin)
			l.perHost = 1
			l.tuningFiles()
			tunedAfterHost(l, tunings[name])
		})
	}
	t.Run("another base", func(t *testing.T) {
		l := newLaunching(t, bin)
		l.tuningFiles()
		tunedOverAnother(l)
	})
}

// tuningFiles makes the model, the reference and the rows of the tests.
func (l *launching) tuningFiles() {
	l.t.Helper()
	dpo, sft, chat := golden.Dir(l.t, "dpo"), golden.Dir(l.t, "sft"), golden.Dir(l.t, "chat")
	var prompts strings.Builder
	for i := range 20 {
		fmt.Fprintf(&prompts, "{\"prompt\": \"Count %d and\"}\n", i)
	}
	write(l.t, filepath.Join(l.dir, "prompts.jsonl"), prompts.String())
	for to, from := range map[string]string{
		"base/config.json": dpo + "/config.json", "base/model.safetensors": dpo + "/weights.safetensors", "base/tokenizer.json": chat + "/tokenizer.json", "base/chat_template.jinja": sft + "/chat_template.jinja",
		"reference/config.json": dpo + "/config.json", "reference/model.safetensors": dpo + "/reference.safetensors",
		"rows.jsonl": sft + "/messages.jsonl", "pairs.jsonl": dpo + "/messages.jsonl",
	} {
		text, err := os.ReadFile(from)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(filepath.Join(l.dir, to)), 0o755)
		}
		if err != nil {
			l.t.Fatal(err)
		}
		write(l.t, filepath.Join(l.dir, to), string(text))
	}
}

// Claim (docs/failures.md): a tuning of every kind continues from memory after a host is lost with all its
// memory, with the numbers and the bytes of an undisturbed run: the adapter, its optimizer, what preferences
// are compared with, and answers under way.
func tunedAfterHost(l *launching, flags string) {
	l.must("pretrain_gpt " + tuned + flags + "--world-size 2 --save whole --save-interval 6 --log-jsonl whole.jsonl")
	notes := l.lostHost(tuned+flags+"--inject sleep:rank=1:step=8:phase=data:seconds=1.5 --memory-checkpoint-interval 2 --replication-jump 1 --save b --save-on-load loaded ", "b.jsonl", 7)
	l.says(notes, "loaded the memory checkpoint: iteration 6", "the shards of ranks [1] were read from copies; the copy of a shard is on the host of the rank whose number is higher by 1")
	if strings.Count(notes, "the reference's log-probabilities of") > 1 {
		l.t.Errorf("the reference was computed again: %s", notes)
	}
	l.sameCheckpoint("loaded", 6)
	l.sameEnd("b.jsonl", "b")
}

// Claim (docs/failures.md): an adapter does not continue over a base that is not the one it was trained over.
func tunedOverAnother(l *launching) {
	cmd, notes := l.start("launch --nproc-per-node 2 --max-restarts 2 -- pretrain_gpt "+tuned+tunings["LoRA"]+"--inject sleep:rank=1:step=8:phase=data:seconds=1.5,kill:rank=1:step=8:phase=forward "+
		"--memory-checkpoint-interval 2 --log-jsonl c.jsonl", "c.jsonl", 7)
	write(l.t, filepath.Join(l.dir, "base", "model.safetensors"), l.read("reference/model.safetensors"))
	if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != 65 || !strings.Contains(notes.String(), "the base model that was read now differs from that of the run before the restart") {
		l.t.Errorf("%s: %s", cmd.ProcessState, notes)
	}
}
