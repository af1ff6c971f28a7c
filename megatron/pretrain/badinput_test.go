package pretrain

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint/native"
)

// Claim (docs/exit-codes.md): one error that names the position, with the right
// exit code, before a line is trained.
func TestBadInputHasOneClearError(t *testing.T) {
	dir := t.TempDir()
	corpus(t, dir, "good", 300, 200, 100, 100, 100)
	corpus(t, dir, "one", 5)
	corpus(t, dir, "empty")
	corpus(t, dir, "cut", 300)
	write(t, dir, "cut.bin", 100)
	corpus(t, dir, "cutindex", 300)
	write(t, dir, "cutindex.idx", 40)
	corpus(t, dir, "nobin", 300)
	remove(t, dir, "nobin.bin")
	write(t, dir, "text", 10)
	for _, name := range []string{"bare", "tuned/model", "tuned/saved/iter_0000002", "tuned/adapter"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, dir, "tuned/model/config.json", 10)
	write(t, dir, "tuned/saved/iter_0000002/manifest.json", 10)
	data := tiny + "--tokenizer-type NullTokenizer --vocab-size 50 --data-path DIR/"
	for _, c := range []struct {
		line string
		code exitcode.Code
		want string
	}{
		{"", exitcode.Usage, "--num-layers is missing"},
		{tiny + someData + "--lr", exitcode.Usage, "--lr needs a value"},
		{tiny + someData + "--config", exitcode.Usage, "--config needs a value"},
		{tiny + someData + "--config DIR/none.yaml", exitcode.NoInput, "none.yaml does not exist"},
		{tiny + someData + "--config DIR", exitcode.BadData, "is a folder, not a file"},
		{tiny + someData + "--num-heads 3", exitcode.Usage, "unknown flag --num-heads"},
		{tiny + someData + "--hidden-dropout 1", exitcode.Usage, "at least 0 and below 1"},
		{tiny + someData + "--hidden-size 2000000000", exitcode.Usage, "no machine can store that"},
		{tiny + someData + "--rampup-batch-size 1 1 8", exitcode.Usage, "the global batch size 1"},
		{tiny + "--mock-data --tokenizer-type NullTokenizer", exitcode.Usage, "--vocab-size"},
		{tiny + someData + "--sample-prompt x", exitcode.Usage, `--sample-prompt "x"`},
		{tiny + someData + "--sample-prompt 50", exitcode.Usage, "token 50 is outside the vocabulary of 50"},
		{tiny + someData + "--sample-prompt 1~1~1~1~1~1~1~1~1~1~1~1~1~1~1~1", exitcode.Usage, "leaves no space for generated tokens"},
		{tiny + someData + "--save DIR/text --save-interval 2", exitcode.IO, "--save"},
		{tiny + someData + "--save /proc/nothing --save-interval 2", exitcode.IO, "--save /proc/nothing"},
		{tiny + someData + "--load DIR/text", exitcode.IO, "neither a folder"},
		{tiny + someData + "--load DIR/none --exit-on-missing-checkpoint", exitcode.NoInput, "the folder has no checkpoint"},
		{tiny + someData + "--load DIR/none --ckpt-step 3", exitcode.NoInput, "the folder has no checkpoint"},
		{tiny + someData + "--load DIR/none", exitcode.NoInput, "the folder does not exist; correct the path"},
		{tiny + someData + "--finetune --load DIR/none", exitcode.NoInput, "there is no such folder; correct the path"},
		{tiny + someData + "--finetune --load DIR/bare", exitcode.NoInput, "--finetune starts from the weights of a checkpoint, but the folder has no checkpoint"},
		{tiny + someData + "--finetune --load DIR/bare --save DIR/bare", exitcode.NoInput, "the folder has no checkpoint"},
		{tiny + someData + "--finetune --load DIR/tuned", exitcode.NoInput, "folders in it have one; give DIR/tuned/model or DIR/tuned/saved"},
		{tiny + someData + "--load DIR/tuned", exitcode.NoInput, "folders in it have one; give DIR/tuned/model or DIR/tuned/saved"},
		{tiny + someData + "--pretrained-checkpoint DIR/none", exitcode.NoInput, "no checkpoint found"},
		{"--use-checkpoint-args --load DIR/none", exitcode.Usage, "contains no checkpoint"},
		{tiny + someData + "--log-jsonl DIR/text/x", exitcode.IO, "--log-jsonl"},
		{tiny + someData + "--tensorboard-dir DIR/text", exitcode.IO, "--tensorboard-dir"},
		{tiny + someData + "--result-json DIR/text/r.json", exitcode.IO, "--result-json DIR/text/r.json cannot be written"},
		{tiny + someData + "--result-json DIR", exitcode.IO, "is a folder or device; name a file"},
		{tiny + someData + "--result-json /dev/null", exitcode.IO, "--result-json /dev/null is a folder or device"},
		{tiny + someData + "--result-json DIR/made/r.json --lr 1e30", exitcode.Internal, "are not finite"},
		{tiny + someData + "--log-fingerprints DIR/text", exitcode.IO, "--log-fingerprints"},
		{tiny + someData + "--run-folder DIR/text", exitcode.IO, "text"},
		{tiny + someData + "--profile DIR/nodir/x.json", exitcode.IO, "--profile"},
		{tiny + someData + "--profile DIR", exitcode.IO, "is a folder"},
		{tiny + someData + "--metrics-addr x", exitcode.Usage, "--metrics-addr x"},
		{data + "none", exitcode.NoInput, "none.idx does not exist"},
		{data + "none --num-heads 3", exitcode.Usage, "none.idx does not exist"},
		{data + "none --num-heads 3", exitcode.Usage, "2 problems:\n  unknown flag --num-heads; did you mean --num-attention-heads?\n"},
		{tiny + "--tokenizer-type GPT2BPETokenizer --vocab-file DIR/v --merge-file DIR/m --data-path DIR/none", exitcode.NoInput, "2 problems:\n  --vocab-file: "},
		{data + "nobin", exitcode.NoInput, "nobin.bin does not exist"},
		{data + "good DIR/one --split 99,1,0 --seq-length 2 --max-position-embeddings 2", exitcode.BadData, "good: the dataset has 5 sequences, and the valid split gets none of them; leave the dataset out of the blend, or give --split 3,1,1"},
		{data + "cut", exitcode.BadData, "ends beyond the end of"},
		{data + "cutindex", exitcode.BadData, "byte"},
		{data + "empty --split 1,0,0", exitcode.BadData, "the dataset has 0 sequences"},
		{data + "good --split 0,1,0", exitcode.BadData, "training split"},
		{data + "good --split 0,0,0", exitcode.Usage, "at least one number must be above zero"},
		{data + "good --vocab-size 20 --split 1,0,0", exitcode.BadData, "made with another tokenizer"},
		{data + "one --split 1,0,0 --train-iters 1 --seq-length 2 --max-position-embeddings 2 --num-workers 0 --valid-data-path DIR/one", exitcode.Usage, "cannot be combined; give one"},
		{tiny + someData + "--lr 1e30", exitcode.Internal, "are not finite"},
	} {
		r := call(t, dir, c.line)
		if r.code() != c.code || !strings.Contains(r.err.Error(), strings.ReplaceAll(c.want, "DIR", dir)) {
			t.Errorf("%s:\ncode %d: %v\nwant %d: %s", c.line, r.code(), r.err, c.code, c.want)
		}
		if strings.Contains(r.out, "iteration        2/") {
			t.Errorf("%s trained before it failed:\n%s", c.line, r.out)
		}
	}
}

func write(t *testing.T, dir, name string, size int64) {
	t.Helper()
	path := filepath.Join(dir, name)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

// Claim: data too short for one sample gives a note, not a loss of zero; data
// that is short for an evaluation is repeated.
func TestShortValidationData(t *testing.T) {
	dir := t.TempDir()
	corpus(t, dir, "train", 300)
	corpus(t, dir, "short", 5)
	line := tiny + "--tokenizer-type NullTokenizer --vocab-size 50 --train-data-path DIR/train --valid-data-path DIR/short "
	r := must(t, dir, line+"--full-validation")
	if strings.Contains(r.out, "validation loss") || !strings.Contains(r.notes, "the valid data is shorter than one sample of 16 tokens") {
		t.Errorf("%s%s", r.out, r.notes)
	}
	if r = must(t, dir, line); !strings.Contains(r.out, "validation loss at iteration 4 |") {
		t.Error(r.out)
	}
}

// Claim: a checkpoint of another model, precision or schedule is refused with
// what differs; what is asked for by flag goes.
func TestCheckpointThatDoesNotFit(t *testing.T) {
	dir := t.TempDir()
	base := tiny + someData
	must(t, dir, base+"--save DIR/c --save-interval 3")
	for _, c := range []struct {
		add, want string
	}{
		{"--hidden-size 32", "[50 16] in the checkpoint, but [50 32] in this run"},
		{"--hidden-size 32", "--hidden-size 16 -> 32, --ffn-hidden-size 64 -> 128, --kv-channels 8 -> 16; give the values of the checkpoint"},
		{"--num-layers 3", "layers.2"},
		{"--num-layers 3", "(the model's flags differ: --num-layers 2 -> 3; give"},
		{"--num-layers 1", "--num-layers 2 -> 1"},
		{"--num-experts 4", "(the model's flags differ: a mixture of experts false -> true; give the values of the checkpoint, or use --use-checkpoint-args; use --moe-use-upcycling to initialize experts"},
		{"--num-attention-heads 4", "--num-attention-heads 2 -> 4"},
		{"--no-bias-gelu-fusion", "activation gelu_tanh -> gelu"},
		{"--bf16", "the precision flags differ"},
		{"--bf16", "(if only the precision or the optimizer differs, use --finetune"},
		{"--bf16 --num-attention-heads 4 --no-load-optim", "--num-attention-heads 2 -> 4"},
		{"--train-iters 8", "decay samples: 32 in this run, but 24 in the checkpoint"},
		{"--ckpt-step 4", "it has 3, 6"},
		{"--vocab-size 60", "[50 16] in the checkpoint, but [60 16] in this run"},
	} {
		r := call(t, dir, base+"--load DIR/c "+c.add)
		if r.err == nil || !strings.Contains(r.err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.add, r.err, c.want)
		}
	}
	experts := base + "--num-experts 4 --disable-bias-linear "
	must(t, dir, experts+"--save DIR/e")
	for add, want := range map[string]string{
		"--num-experts 5":                                             "(the model's flags differ: --num-experts 4 -> 5; give",
		"--moe-layer-freq 2":                                          "layers by --moe-layer-freq [true true] -> [true false]; give",
		"--moe-ffn-hidden-size 16":                                    "--moe-ffn-hidden-size 64 -> 16; give",
		"--moe-shared-expert-intermediate-size 8":                     "--moe-shared-expert-intermediate-size 0 -> 8; give",
		"--moe-ffn-hidden-size 16 --finetune":                         "--moe-ffn-hidden-size 64 -> 16; give",
		"--moe-router-topk 3 --moe-ffn-hidden-size 9 --no-load-optim": "--moe-ffn-hidden-size 64 -> 9, --moe-router-topk 2 -> 3; give",
	} {
		if r := call(t, dir, experts+"--load DIR/e "+add); r.code() != exitcode.IO || !strings.Contains(r.err.Error(), want) || strings.Contains(r.err.Error(), "if only precision") {
			t.Errorf("%s: exit %d, %v, want %q", add, r.code(), r.err, want)
		}
	}
	for _, add := range []string{"--bf16 --no-load-optim", "--bf16 --finetune", "--num-attention-heads 4 --finetune", "--seed 5", "--ckpt-step 3", "--optimizer sgd",
		"--train-iters 8 --override-opt_param-scheduler", "--train-iters 8 --use-checkpoint-opt_param-scheduler", "--train-iters 4 --override-opt-param-scheduler", "--skip-train --train-iters 0"} {
		must(t, dir, base+"--load DIR/c "+add)
	}
}

// Claim: a damaged newest checkpoint is reported and the one before it taken,
// whichever region is broken; with all damaged the run does not restart at step 0.
func TestDamagedCheckpoints(t *testing.T) {
	dir := t.TempDir()
	base := tiny + someData + "--load DIR/c "
	want := numbers(must(t, dir, tiny+someData+"--save DIR/c --save-interval 3").out)
	for _, file := range []string{"manifest.json", "rank_00000.safetensors"} {
		path := filepath.Join(dir, "c", "iter_0000006", file)
		full, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []int{0, 60, len(full) / 2, len(full) - 2, -1} {
			broken := append([]byte{}, full...)
			if at >= 0 {
				broken[at] ^= 0x55
			} else {
				broken = broken[:len(broken)/2]
			}
			if err := os.WriteFile(path, broken, 0o644); err != nil {
				t.Fatal(err)
			}
			r := must(t, dir, base)
			got := numbers(r.out)
			if !strings.Contains(r.notes, "iteration 6 is damaged") || !strings.Contains(r.notes, "iteration 3 is used instead") {
				t.Errorf("%s byte %d: %s", file, at, r.notes)
			}
			if strings.Join(got, "\n") != strings.Join(want[3:], "\n") {
				t.Errorf("%s byte %d: went on with\n%s\nwant\n%s", file, at, strings.Join(got, "\n"), strings.Join(want[3:], "\n"))
			}
		}
		if err := os.WriteFile(path, full, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, iter := range []string{"iter_0000003", "iter_0000006"} {
		remove(t, filepath.Join(dir, "c", iter), "rank_00000.safetensors")
	}
	r := call(t, dir, base+"--save DIR/c --save-interval 3")
	if r.code() != exitcode.IO || !strings.Contains(r.err.Error(), "no undamaged checkpoint") {
		t.Errorf("%d: %v", r.code(), r.err)
	}
}

// Claim: a disk that fills up ends the run with the reason, and what was saved
// before stays complete.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if !smallDisk(t, dir, "300k") {
		t.Skip("no small file system can be mounted here (needs root)")
	}
	r := call(t, dir, tiny+someData+"--save DIR/c --save-interval 1")
	if r.code() != exitcode.IO || !strings.Contains(r.err.Error(), "are free; free some") {
		t.Fatalf("%d: %v", r.code(), r.err)
	}
	list, err := native.List(filepath.Join(dir, "c"))
	if err != nil || len(list) == 0 {
		t.Fatalf("%v, %v", list, err)
	}
	soundFolder(t, filepath.Join(dir, "c"))
	must(t, dir, tiny+someData+"--load DIR/c")
}

// soundFolder fails the test when anything under a final name is incomplete.
func soundFolder(t *testing.T, folder string) {
	t.Helper()
	list, err := native.List(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if err := native.Verify(folder, e.Iteration); err != nil {
			t.Errorf("%s: %v", e.Path, err)
		}
	}
}
