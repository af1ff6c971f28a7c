package tests

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// opens are the files that may open or read files by themselves, and why. All others go
// by exitcode.Open or exitcode.ReadFile, which take plain files alone: a pipe named on a command
// line would be waited for, and a device read for ever.
var opens = map[string]string{
	"internal/exitcode/read.go":            "the place itself",
	"internal/atomicfile/folder.go":        "a folder, to sync it",
	"megatron/training/hold.go":            "a folder, to lock it",
	"megatron/checkpoint/addition.go":      "a folder, to lock it",
	"tools/launch/old.go":                  "folders, to lock them",
	"megatron/plan/capacity.go":            "the kernel's files",
	"mpu/bootstrap/preflight/preflight.go": "this program itself",
	"mpu/health/activity_linux.go":         "the kernel's files",
	"mpu/health/demand_linux.go":           "the kernel's files",
	"internal/system/proc.go":              "the kernel's files",
	"tools/bench/process.go":               "the kernel's files",
	"tools/doctor/host.go":                 "the kernel's files",
	"internal/cgroup/cgroup.go":            "the kernel's files",
	"internal/system/threads.go":           "the kernel's files",
	"csrc/comm/nccl/warnings.go":           "what NCCL writes for this process",
	"dataset/jsonl/part.go":                "a corpus that was seen to be a plain file, from anywhere",
	"dataset/jsonl/lines.go":               "a corpus may come through a pipe; it is read in blocks",
	"tools/internal/command/prompt.go":     "a prompt may come through a pipe; 64 MiB of it are read at most",
	"tests/proofs/jobs/manifests/main.go":  "a program of its own, for files of this repository",
}

// TestFilesAreOpenedInOneFunction: what a user or a checkpoint names is opened by package exitcode.
func TestFilesAreOpenedInOneFunction(t *testing.T) {
	found := map[string]bool{}
	err := walkSources(func(path string) error {
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "scripts/") || strings.HasPrefix(path, "internal/golden/") {
			return nil
		}
		at, err := callsOf(path, "os", "Open", "ReadFile", "O_RDONLY")
		for _, line := range at {
			found[path] = true
			if opens[path] == "" {
				t.Errorf("%s opens a file: use exitcode.Open or exitcode.ReadFile, or say here why not", line)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for path := range opens {
		if !found[path] {
			t.Errorf("%s opens nothing: its row is of no use", path)
		}
	}
}

// Claim (docs/exit-codes.md): a pipe that nobody writes, or a device that never ends, in place
// of any file, is bad data, reported at once and by its name.
func TestPipesAndDevicesAreNotFiles(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := syscall.Mkfifo(at("pipe"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"piped.idx", "bin.bin"} {
		if err := syscall.Mkfifo(at(name), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"piped.bin": "ab", "text.jsonl": `{"text": "a"}` + "\n", "m.txt": "#version: 0.2\n"} {
		if err := os.WriteFile(at(name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	train := "pretrain_gpt --num-layers 1 --hidden-size 8 --num-attention-heads 1 --seq-length 8 --max-position-embeddings 8 --micro-batch-size 1 " +
		"--global-batch-size 1 --train-iters 1 --lr 1e-3 --eval-iters 0 "
	tokens := "preprocess_data --input " + at("text.jsonl") + " --output-prefix " + at("out") + " "
	lines := []string{
		train + "--mock-data --config FILE",
		train + "--data-args-path FILE --tokenizer-type NullTokenizer --vocab-size 10",
		train + "--per-split-data-args-path FILE --tokenizer-type NullTokenizer --vocab-size 10",
		train + "--mock-data --tokenizer-type CharTokenizer --vocab-file FILE",
		train + "--mock-data --vocab-file FILE --merge-file " + at("m.txt"),
		train + "--mock-data --tokenizer-type TikTokenizer --tokenizer-model FILE",
		tokens + "--tokenizer-type HuggingFaceTokenizer --tokenizer-model FILE",
		tokens + "--tokenizer-type Llama2Tokenizer --tokenizer-model FILE",
		"inspect checkpoint FILE",
		"convert --input FILE --to native --output " + at("made"),
		"generate --load FILE --prompt-ids 1",
		"launch --hostfile FILE true",
		"report FILE",
		"verify case FILE",
	}
	for _, device := range []string{at("pipe"), "/dev/zero"} {
		for _, line := range lines {
			ends(t, strings.ReplaceAll(line, "FILE", device), device)
		}
	}
	// Rows of a tuning, which are read more than once.
	model := train + "--mock-data --tokenizer-type NullTokenizer --vocab-size 10 --save " + at("model")
	if text, err := exec.Command(filepath.Join(program(t), "monotron"), strings.Fields(model)...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if err := os.WriteFile(at("rows.jsonl"), []byte(`{"input_ids": [1, 2], "labels": [1, 2]}`+"\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, device := range []string{at("pipe"), "/dev/zero", "/dev/stdin"} {
		for _, line := range []string{
			"finetune --model " + at("model") + " --output " + at("tuned") + " --data FILE",
			"finetune --model " + at("model") + " --output " + at("tuned") + " --data " + at("rows.jsonl") + " --eval-data FILE",
			"finetune --model " + at("model") + " --output " + at("tuned") + " --data FILE --tuning dpo",
			"finetune --model " + at("model") + " --output " + at("tuned") + " --data FILE --tuning grpo --reward exact",
			"inspect samples --labels --load " + at("model") + " --finetune-data FILE",
			train + "--load " + at("model") + " --finetune-data FILE",
		} {
			ends(t, strings.ReplaceAll(line, "FILE", device), device)
		}
	}
	ends(t, train+"--data-path "+at("piped")+" --tokenizer-type NullTokenizer --vocab-size 10", at("piped.idx"))
	ends(t, "preprocess_data --input /dev/zero --input-format text --tokenizer-type GPT2BPETokenizer --output-prefix "+at("endless"), "/dev/zero")
	ends(t, "inspect dataset "+at("piped"), at("piped.idx"))
}

// ends runs a command line, which must end soon with 65 and one line that names file.
func ends(t *testing.T, line, file string) {
	t.Helper()
	command := append([]string{"-c", `ulimit -v 8000000; exec "$0" "$@"`, filepath.Join(program(t), "monotron")}, strings.Fields(line)...)
	ctx, cancel := context.WithTimeout(context.Background(), slow)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", command...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	_ = cmd.Run() // its code says it
	text := out.String()
	if code := cmd.ProcessState.ExitCode(); ctx.Err() != nil || code != 65 || !strings.Contains(text, file) {
		t.Errorf("%s: code %d, %v: %s", line, code, ctx.Err(), fmt.Sprintf("%.600s", text))
	}
}
