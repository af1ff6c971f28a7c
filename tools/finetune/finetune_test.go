package finetune

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"monotron/internal/exitcode"
	"monotron/internal/golden"
)

// modelOf is the model of golden/sft as a Hugging Face folder.
func modelOf(t *testing.T) string {
	t.Helper()
	dir, from := t.TempDir(), golden.Dir(t, "sft")
	for to, path := range map[string]string{"config.json": filepath.Join(from, "config.json"), "model.safetensors": filepath.Join(from, "weights.safetensors"),
		"chat_template.jinja": filepath.Join(from, "chat_template.jinja"), "tokenizer.json": filepath.Join(golden.Dir(t, "chat"), "tokenizer.json")} {
		text, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, to), text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

var errTrained = errors.New("trained")

// call runs the command until training would begin, and gives its command line.
func call(args ...string) (line []string, notes string, err error) {
	var out, errs bytes.Buffer
	train := func(_ context.Context, args []string) error {
		line = args
		return errTrained
	}
	app := &cli.App{Writer: &out, ErrWriter: &errs, Commands: []*cli.Command{Command(train)}, ExitErrHandler: func(*cli.Context, error) {}}
	err = app.Run(append([]string{"monotron", "finetune"}, args...))
	return line, errs.String(), err
}

// Claim: the number of steps follows from rows, packing, batch and epochs; flags of pretrain_gpt
// come last, so that they count.
func TestLine(t *testing.T) {
	model, rows := modelOf(t), filepath.Join(golden.Dir(t, "sft"), "messages.jsonl")
	line, notes, err := call("--model", model, "--data", rows, "--eval-data", rows, "--output", filepath.Join(t.TempDir(), "out"), "--packing", "none", "--batch-size", "6", "--epochs", "2", "--patience", "4", "--world-size", "2", "--lr-decay-style", "cosine")
	if !errors.Is(err, errTrained) {
		t.Fatal(err)
	}
	if want := "rows: 16, sequences of 128 tokens: 16, steps of 6 sequences: 6, epochs: 2\nnote: batches of 6 do not divide the epochs evenly, so the last step reads 4 sequences once more\n"; notes != want {
		t.Errorf("%q, want %q", notes, want)
	}
	text := strings.Join(line, " ")
	for _, want := range []string{"--train-iters 6", "--save-interval 3", "--eval-interval 3", "--micro-batch-size 3", "--lora-rank 16 --lora-alpha 32", "--lr 0.0002", "--early-stopping-patience 4 --keep-best"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	if strings.Contains(text, "--lr-warmup") {
		t.Errorf("the first of 6 steps would have a rate of 0: %s", text)
	}
	if !slices.Equal(line[len(line)-4:], []string{"--world-size", "2", "--lr-decay-style", "cosine"}) {
		t.Errorf("%s", text)
	}
	line, _, err = call("--model", model, "--data", rows, "--output", filepath.Join(t.TempDir(), "out"), "--seq-length", "64", "--packing", "none", "--batch-tokens", "700")
	if text := strings.Join(line, " "); !errors.Is(err, errTrained) || !strings.Contains(text, "--micro-batch-size 2 --global-batch-size 10") {
		t.Errorf("%v: %s", err, text)
	}
	line, _, err = call("--model", model, "--data", rows, "--output", filepath.Join(t.TempDir(), "out"), "--lora-rank", "0")
	if text := strings.Join(line, " "); !errors.Is(err, errTrained) || strings.Contains(text, "lora") || strings.Contains(text, "--keep-best") || !strings.Contains(text, "--lr 2e-05") {
		t.Errorf("%v: %s", err, text)
	}
}

// Claim: a preference tuning has its method, no packing and a lower rate, and counts pairs or answers.
func TestPreferenceLine(t *testing.T) {
	model, out, dpo := modelOf(t), filepath.Join(t.TempDir(), "out"), golden.Dir(t, "dpo")
	line, notes, err := call("--model", model, "--data", filepath.Join(dpo, "text.jsonl"), "--output", out, "--tuning", "dpo", "--batch-size", "4", "--seq-length", "64", "--beta", "0.2", "--preference-loss", "hinge")
	if !errors.Is(err, errTrained) {
		t.Fatal(err)
	}
	if want := "rows: 17, pairs of answers of 64 tokens: 16, steps of 4 pairs of answers: 12, epochs: 3\n"; notes != want {
		t.Errorf("%q, want %q", notes, want)
	}
	text := strings.Join(line, " ")
	for _, want := range []string{"--tuning dpo --finetune-packing none", "--beta 0.2", "--lr 1e-05", "--train-iters 12", "--preference-loss hinge"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	_, notes, err = call("--model", model, "--data", filepath.Join(dpo, "unpaired.jsonl"), "--output", out, "--tuning", "kto", "--seq-length", "64", "--epochs", "1")
	if want := "rows: 21, answers of 64 tokens: 20, steps of 16 answers: 2, epochs: 1\nnote: batches of 16 do not divide the epochs evenly, so the last step reads 12 answers once more\n"; !errors.Is(err, errTrained) || notes != want {
		t.Errorf("%v: %q, want %q", err, notes, want)
	}
}

// Claim: an epoch reads every row once, also where a batch has more sequences than there are: steps are then as long as
// the rows, as TRL's are. Ranks still have the same number of rows, and a prompt all of its answers.
func TestFewerRowsThanABatch(t *testing.T) {
	model, rows := modelOf(t), filepath.Join(golden.Dir(t, "sft"), "messages.jsonl")
	prompts := filepath.Join(t.TempDir(), "prompts.jsonl")
	if err := os.WriteFile(prompts, []byte(strings.Repeat(`{"prompt": "a", "answer": "b"}`+"\n", 3)), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		flags, line, says string
	}{
		{"--packing none --batch-size 64 --epochs 3", "--micro-batch-size 4 --global-batch-size 16", "steps of 16 sequences: 3, epochs: 3\nnote: there are fewer sequences than --batch-size 64, so a step uses 16\n"},
		{"--packing none --batch-size 64 --epochs 0.5", "--global-batch-size 16", "a step uses 16\nnote: batches of 16 do not divide the epochs evenly, so the last step reads 8 sequences once more\n"},
		{"--packing none --batch-size 16 --epochs 1", "--global-batch-size 16", "steps of 16 sequences: 1, epochs: 1\n"},
		{"--packing none --batch-size 64 --micro-batch-size 32 --epochs 1", "--micro-batch-size 4 --global-batch-size 16", "a step uses 16\n"},
		{"--packing none --batch-size 60 --epochs 1 --world-size 3", "--micro-batch-size 1 --global-batch-size 15", "a step uses 15\nnote: batches of 15 do not divide the epochs evenly, so the last step reads 14 sequences once more\n"},
		{"--packing none --batch-size 4 --epochs 1 --world-size 2", "--micro-batch-size 2 --global-batch-size 4", "steps of 4 sequences: 4"},
		{"--packing none --batch-size 2 --epochs 1 --world-size 2", "--micro-batch-size 1 --global-batch-size 2", "steps of 2 sequences: 8"},
		{"--packing none --batch-tokens 700 --epochs 1 --world-size 2", "--micro-batch-size 2 --global-batch-size 4", "steps of 4 sequences: 4"},
		{"--packing none --batch-size 64 --epochs 1 --global-batch-size 32", "--global-batch-size 64", "steps of 64 sequences"},
		{"--tuning grpo --reward exact --grpo-group-size 4 --batch-size 64 --epochs 1 --data " + prompts, "--global-batch-size 12", "steps of 12 answers: 1, epochs: 1\nnote: there are fewer answers than --batch-size 64, so a step uses 12\n"},
	} {
		line, notes, err := call(append([]string{"--model", model, "--data", rows, "--output", filepath.Join(t.TempDir(), "out")}, strings.Fields(c.flags)...)...)
		if text := strings.Join(line, " "); !errors.Is(err, errTrained) || !strings.Contains(text, c.line) || !strings.Contains(notes, c.says) {
			t.Errorf("%s: %v\n%s\n%s", c.flags, err, text, notes)
		}
	}
}

// Claim: what is wrong is one error, and nothing is trained.
func TestRefusals(t *testing.T) {
	model, rows, dir := modelOf(t), filepath.Join(golden.Dir(t, "sft"), "messages.jsonl"), t.TempDir()
	bad := filepath.Join(dir, "bad.jsonl")
	if err := os.WriteFile(bad, []byte("{\"text\": \"a\"}\n\n{\"prompt\": \"b\"}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	prompts := filepath.Join(dir, "prompts.jsonl")
	if err := os.WriteFile(prompts, []byte("{\"prompt\": \"a\", \"answer\": \"b\"}\n{\"prompt\": \"c\"}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "done", "model"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "of"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(model, filepath.Join(dir, "of", "model")); err != nil {
		t.Fatal(err)
	}
	for _, w := range []struct {
		code  exitcode.Code
		says  string
		flags []string
	}{
		{exitcode.Usage, "--model is missing", []string{"--data", rows, "--output", dir}},
		{exitcode.Usage, "--output is missing", []string{"--data", rows, "--model", model}},
		{exitcode.BadData, bad + `:3: the row has the fields "prompt"`, []string{"--data", bad, "--model", model, "--output", dir}},
		{exitcode.BadData, "--eval-data: " + bad + ":3", []string{"--data", rows, "--eval-data", bad, "--model", model, "--output", dir}},
		{exitcode.NoInput, "none does not exist", []string{"--data", dir + "/none", "--model", model, "--output", dir}},
		{exitcode.NoInput, "folders in it do; give " + filepath.Join(dir, "of", "model"), []string{"--data", rows, "--model", filepath.Join(dir, "of"), "--output", dir}},
		{exitcode.NoInput, "--model " + rows + ": " + rows + " is a file, but must be a folder", []string{"--data", rows, "--model", rows, "--output", dir}},
		{exitcode.NoInput, "--model " + dir, []string{"--data", rows, "--model", dir, "--output", dir}},
		{exitcode.BadData, bad + `:1: the row has the fields "text", which are for --tuning sft`, []string{"--data", bad, "--model", model, "--output", dir, "--tuning", "dpo"}},
		{exitcode.Usage, "--keep best needs --eval-data", []string{"--data", rows, "--model", model, "--output", dir, "--keep", "best"}},
		{exitcode.Usage, "--keep must be best or last, not first", []string{"--data", rows, "--model", model, "--output", dir, "--keep", "first"}},
		{exitcode.Usage, "--lora-alpha 0 would train nothing", []string{"--data", rows, "--model", model, "--output", dir, "--lora-alpha", "0"}},
		{exitcode.Usage, "--save is a flag of pretrain_gpt that finetune sets itself; give --output instead", []string{"--data", rows, "--model", model, "--output", dir, "--bf16", "--save", dir + "/x"}},
		{exitcode.Usage, "--load is a flag of pretrain_gpt that finetune sets itself; give --model instead", []string{"--data", rows, "--model", model, "--output", dir, "--load=" + model}},
		{exitcode.Usage, "--lr 0 would train nothing", []string{"--data", rows, "--model", model, "--output", dir, "--lr", "0"}},
		{exitcode.Usage, "--beta 0 would ignore the preferences", []string{"--data", filepath.Join(golden.Dir(t, "dpo"), "text.jsonl"), "--model", model, "--output", dir, "--tuning", "dpo", "--beta", "0"}},
		{exitcode.BadData, prompts + `:2: field "answer": the field is missing; --reward exact compares answers with this field`, []string{"--data", prompts, "--model", model, "--output", dir, "--tuning", "grpo", "--reward", "exact"}},
		{exitcode.Usage, "is not a positive multiple of --micro-batch-size 5 times 2 data-parallel ranks", []string{"--data", rows, "--model", model, "--output", dir, "--batch-tokens", "700", "--micro-batch-size", "5", "--world-size", "2"}},
		{exitcode.Usage, "--micro-batch-size 1 times 2 data-parallel ranks: use 2 or 4", []string{"--data", rows, "--model", model, "--output", dir, "--batch-size", "3", "--world-size", "2"}},
		{exitcode.Usage, "--packing must be bfd, bfd_split, in_order or none, not x", []string{"--data", rows, "--model", model, "--output", dir, "--packing", "x"}},
		{exitcode.Usage, "--patience needs --eval-data", []string{"--data", rows, "--model", model, "--output", dir, "--patience", "1"}},
		{exitcode.Usage, "--tuning must be sft, dpo, ipo, orpo, simpo, kto or grpo, not ppo", []string{"--data", rows, "--model", model, "--output", dir, "--tuning", "ppo"}},
		{exitcode.Usage, "already has a tuned model", []string{"--data", rows, "--model", model, "--output", filepath.Join(dir, "done")}},
		{exitcode.Usage, "cannot be combined with --batch-tokens; give one", []string{"--data", rows, "--model", model, "--output", dir, "--batch-size", "4", "--batch-tokens", "4096"}},
		{exitcode.Usage, "--batch-tokens 100 is less than the 128 tokens of a sample", []string{"--data", rows, "--model", model, "--output", dir, "--batch-tokens", "100"}},
		{exitcode.Usage, "--batch-size 4 is not a multiple of --micro-batch-size 3", []string{"--data", rows, "--model", model, "--output", dir, "--batch-size", "4", "--micro-batch-size", "3"}},
	} {
		_, _, err := call(w.flags...)
		if err == nil || !strings.Contains(err.Error(), w.says) || exitcode.CodeOf(err) != w.code || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: code %d, %v; want %d, %s", w.flags, exitcode.CodeOf(err), err, w.code, w.says)
		}
	}
}

// Claim (docs/finetuning.md): checkpoints of other rows, another base or other settings are refused with what differs;
// the same command continues, and so does one that differs in what changes no result. A start that made no checkpoint
// leaves nothing.
func TestAnotherTuningIsRefused(t *testing.T) {
	model, dir := modelOf(t), t.TempDir()
	text, err := os.ReadFile(filepath.Join(golden.Dir(t, "sft"), "messages.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, text []byte) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, text, 0o644)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	rows, fewer, out := write("rows.jsonl", text), write("fewer.jsonl", text[:bytes.LastIndexByte(text[:len(text)-1], '\n')+1]), filepath.Join(dir, "my out")
	line := []string{"--model", model, "--data", rows, "--output", out, "--batch-size", "4", "--lr", "1e-3", "--bf16"}
	if _, _, err := call(line...); !errors.Is(err, errTrained) {
		t.Fatal(err)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("a start without a checkpoint leaves a folder")
	}
	// The first start, that saves.
	saves := func(context.Context, []string) error {
		write("my out/checkpoints/latest_checkpointed_iteration.txt", []byte("3"))
		return errTrained
	}
	app := &cli.App{Writer: io.Discard, ErrWriter: io.Discard, Commands: []*cli.Command{Command(saves)}, ExitErrHandler: func(*cli.Context, error) {}}
	if err := app.Run(append([]string{"monotron", "finetune"}, line...)); !errors.Is(err, errTrained) {
		t.Fatal(err)
	}
	// Another base: one weight has another bit.
	other := modelOf(t)
	weights, err := os.ReadFile(filepath.Join(other, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	weights[len(weights)-2] ^= 1
	if err := os.WriteFile(filepath.Join(other, "model.safetensors"), weights, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		says string // "": it continues
		more []string
	}{
		{"", nil},
		{"", []string{"--model", modelOf(t)}},
		{"", []string{"--data", write("copy.jsonl", text)}},
		{"", []string{"--world-size", "2", "--micro-batch-size", "2", "--log-throughput", "--cpu-threads", "1"}},
		{"--data has other rows", []string{"--data", fewer}},
		{"--model has other weights", []string{"--model", other}},
		{"--eval-data has other rows", []string{"--eval-data", rows}},
		{"--epochs is 2 and was 3, --lr is 0.002 and was 0.001", []string{"--lr", "2e-3", "--epochs", "2"}},
		{"--lr-decay-style cosine is new", []string{"--lr-decay-style", "cosine"}},
		{"--lora-alpha is 8 and was 32, --lora-rank is 4 and was 16", []string{"--lora-rank", "4"}},
	} {
		_, _, err := call(append(slices.Clone(line), c.more...)...)
		switch {
		case c.says == "" && !errors.Is(err, errTrained):
			t.Errorf("%v: %v", c.more, err)
		case c.says != "" && (exitcode.CodeOf(err) != exitcode.Usage || err.Error() != "--output "+out+" has the checkpoints of another run of finetune: "+c.says+"; give another --output, or remove the folder "+out+" to train again"):
			t.Errorf("%v: %v, want %s", c.more, err, c.says)
		}
	}
	if _, _, err := call(line[:len(line)-1]...); err == nil || !strings.Contains(err.Error(), "--bf16 is missing") {
		t.Error(err)
	}
}
