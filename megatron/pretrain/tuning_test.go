package pretrain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"monotron/internal/exitcode"
	"monotron/internal/golden"
	"monotron/internal/safetensors"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/all"
	"monotron/megatron/checkpoint/peft"
	"monotron/megatron/telemetry"
)

// tuned is the case of golden/sft.
type tuned struct {
	dir   string
	Kinds map[string]struct {
		Rows, Packs []struct {
			IDs, Labels []int32
			Learned     int     `json:"learned_tokens"`
			LossSum     float64 `json:"loss_sum"`
		}
		Curve []struct {
			Loss float64
			Norm float64 `json:"grad_norm"`
		}
	}
	Tolerance map[string]struct {
		Row   float64 `json:"row_loss_sum_abs"`
		Loss  float64 `json:"curve_loss_abs"`
		Norm  float64 `json:"curve_grad_norm_rel"`
		Grad  float64 `json:"gradient_rel_to_tensor_norm"`
		Param float64 `json:"param_rel_to_tensor_norm"`
	}
}

func openTuned(t *testing.T) (c tuned) {
	t.Helper()
	c.dir = golden.Dir(t, "sft")
	text, err := os.ReadFile(filepath.Join(c.dir, "case.json"))
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// baseFolder makes DIR/base, a folder of Hugging Face, of a case's files.
func baseFolder(t *testing.T, dir, from, tokenizer string) {
	t.Helper()
	base := filepath.Join(dir, "base")
	if err := os.MkdirAll(base, 0o755); err != nil {
		t.Fatal(err)
	}
	for to, path := range map[string]string{"config.json": filepath.Join(from, "config.json"), "model.safetensors": filepath.Join(from, "weights.safetensors"),
		"tokenizer.json": tokenizer, "chat_template.jinja": filepath.Join(from, "chat_template.jinja")} {
		text, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(filepath.Join(base, to), text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	names := `{"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}`
	if err := os.WriteFile(filepath.Join(base, "tokenizer_config.json"), []byte(names), 0o644); err != nil {
		t.Fatal(err)
	}
}

// tuneLine tunes DIR/base as golden/sft does.
const tuneLine = "--load DIR/base --tuning sft --global-batch-size 4 --seq-length 64 --train-iters 8 --lr 2e-3 --min-lr 2e-3 --lr-decay-style constant " +
	"--optimizer adam --adam-beta1 0.9 --adam-beta2 0.95 --adam-eps 1e-8 --weight-decay 0 --clip-grad 0 --log-interval 1 --seed 1 --no-data-shuffle --device ref --cpu-threads 1 "

// stepsOf reads the steps of a log of JSON lines.
func stepsOf(t *testing.T, path string) (steps []telemetry.Entry) {
	t.Helper()
	f, err := os.Open(path)
	if err == nil {
		steps, err = telemetry.ReadJSONL(f)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(steps, func(e telemetry.Entry) bool { return e.Trained == nil })
}

// hfFolder is a checkpoint as a folder of Hugging Face, its adapter merged.
func hfFolder(t *testing.T, path string) (folder string) {
	t.Helper()
	src, err := all.Open(path, checkpoint.OpenOptions{Step: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	out := filepath.Join(t.TempDir(), "hf")
	if _, err := all.Write(context.Background(), checkpoint.HF, out, peft.MergeOwn(src), checkpoint.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	return out
}

// inHF is a checkpoint's weights under Hugging Face's names.
func inHF(t *testing.T, path string) func(name string) []float32 {
	t.Helper()
	folder, err := safetensors.OpenFolder(hfFolder(t, path))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = folder.Close() })
	return func(name string) []float32 {
		values, err := folder.Float32(name)
		if err != nil {
			t.Fatal(err)
		}
		return values
	}
}

// off is the distance of two tensors in norms of the second.
func off(got, want []float32) float64 {
	if len(got) != len(want) {
		return math.Inf(1)
	}
	var d, n float64
	for i := range want {
		d += math.Pow(float64(got[i])-float64(want[i]), 2)
		n += math.Pow(float64(want[i]), 2)
	}
	return math.Sqrt(d / n)
}

// Claim (golden/sft: float64 torch, TRL 1.16): 8 steps of supervised tuning have the reference's
// losses, gradient norms and weights, and the first step its gradients.
func TestTuningOfTRL(t *testing.T) {
	c, tokenizer := openTuned(t), filepath.Join(golden.Dir(t, "chat"), "tokenizer.json")
	expected, err := safetensors.Open(filepath.Join(c.dir, "expected.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer expected.Close()
	for kind, want := range c.Kinds {
		dir, tol := t.TempDir(), c.Tolerance[kind]
		baseFolder(t, dir, c.dir, tokenizer)
		line := "--finetune-data " + filepath.Join(c.dir, kind+".jsonl") + " --micro-batch-size 2 " + tuneLine
		must(t, dir, line+"--save DIR/save --log-jsonl DIR/log")
		steps := stepsOf(t, filepath.Join(dir, "log"))
		if len(steps) != len(want.Curve) || len(steps) == 0 {
			t.Fatalf("%s: %d steps, want %d", kind, len(steps), len(want.Curve))
		}
		var worst [4]float64
		for i, w := range want.Curve {
			loss, norm := float64(*steps[i].LMLoss), float64(*steps[i].GradNorm)
			worst[0], worst[1] = max(worst[0], math.Abs(loss-w.Loss)), max(worst[1], math.Abs(norm/w.Norm-1))
		}
		must(t, dir, line+"--save DIR/first --train-iters 1 --optimizer sgd --sgd-momentum 0 --lr 1024 --min-lr 1024")
		before, after, first := inHF(t, filepath.Join(dir, "base")), inHF(t, filepath.Join(dir, "save")), inHF(t, filepath.Join(dir, "first"))
		for _, name := range expected.Names() {
			w, err := expected.Float32(name)
			if err != nil {
				t.Fatal(err)
			}
			if tensor, is := strings.CutPrefix(name, kind+".param_after_8."); is {
				worst[2] = max(worst[2], off(after(tensor), w))
			} else if tensor, is := strings.CutPrefix(name, kind+".grad."); is {
				grad, from := first(tensor), before(tensor)
				for i := range grad {
					grad[i] = (from[i] - grad[i]) / 1024
				}
				worst[3] = max(worst[3], off(grad, w))
			}
		}
		t.Logf("%s: off by %.1e in loss (%.0e), %.1e in gradient norm (%.0e), %.1e in weights (%.0e), %.1e in gradients (%.0e)", kind, worst[0], tol.Loss, worst[1], tol.Norm, worst[2], tol.Param, worst[3], tol.Grad)
		if worst[0] > tol.Loss || worst[1] > tol.Norm || worst[2] > tol.Param || worst[3] > tol.Grad || tol.Loss == 0 {
			t.Errorf("%s: beyond the tolerance %+v", kind, tol)
		}
	}
}

// tokenRows writes the rows of a kind as DIR/rows.jsonl, with the reference's ids and labels.
func tokenRows(t *testing.T, dir string, c tuned, kind string) {
	t.Helper()
	var text strings.Builder
	for _, r := range c.Kinds[kind].Rows {
		line, err := json.Marshal(map[string]any{"input_ids": r.IDs, "labels": r.Labels})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&text, string(line))
	}
	if err := os.WriteFile(filepath.Join(dir, "rows.jsonl"), []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Claim (golden/sft): rows of tokens packed in order have the reference's loss sum in each
// pack; with the same documents in a step, packed rows give the loss and the gradient norm of
// rows apart.
func TestPackedEqualsUnpacked(t *testing.T) {
	c, tokenizer := openTuned(t), filepath.Join(golden.Dir(t, "chat"), "tokenizer.json")
	for kind, want := range c.Kinds {
		dir := t.TempDir()
		baseFolder(t, dir, c.dir, tokenizer)
		tokenRows(t, dir, c, kind)
		line := "--finetune-data DIR/rows.jsonl " + tuneLine + "--micro-batch-size 1 --seq-length 96 --lr 1e-30 --min-lr 0 "
		must(t, dir, line+fmt.Sprintf("--finetune-packing in_order --global-batch-size 1 --train-iters %d --log-jsonl DIR/packs", len(want.Packs)))
		for i, s := range stepsOf(t, filepath.Join(dir, "packs")) {
			p := want.Packs[i]
			if sum := float64(*s.LMLoss) * float64(p.Learned); math.Abs(sum-p.LossSum) > c.Tolerance[kind].Row {
				t.Errorf("%s pack %d: loss sum %.7f, want %.7f", kind, i, sum, p.LossSum)
			}
		}
		must(t, dir, line+fmt.Sprintf("--finetune-packing in_order --global-batch-size %d --train-iters 1 --log-jsonl DIR/packed", len(want.Packs)))
		must(t, dir, line+fmt.Sprintf("--global-batch-size %d --train-iters 1 --log-jsonl DIR/apart", len(want.Rows)))
		packed, apart := stepsOf(t, filepath.Join(dir, "packed"))[0], stepsOf(t, filepath.Join(dir, "apart"))[0]
		if math.Abs(float64(*packed.LMLoss-*apart.LMLoss)) > 1e-6 || math.Abs(float64(*packed.GradNorm / *apart.GradNorm - 1)) > 1e-6 {
			t.Errorf("%s: packed loss %v, gradient norm %v; apart %v, %v", kind, *packed.LMLoss, *packed.GradNorm, *apart.LMLoss, *apart.GradNorm)
		}
	}
}

// Claim: the loss of a step depends on its rows alone, not on how they are split into
// micro-batches or over data-parallel, tensor-parallel, pipeline and context-parallel ranks, nor
// on who holds the optimizer's state.
func TestTuningInEveryLayout(t *testing.T) {
	c, tokenizer := openTuned(t), filepath.Join(golden.Dir(t, "chat"), "tokenizer.json")
	for _, packing := range []string{"none", "bfd"} {
		dir := t.TempDir()
		baseFolder(t, dir, c.dir, tokenizer)
		line := "--finetune-data " + filepath.Join(c.dir, "messages.jsonl") + " " + strings.ReplaceAll(tuneLine, "--no-data-shuffle", "") + "--train-iters 4 --finetune-packing " + packing + " "
		want := lossesOf(t, must(t, dir, line+"--micro-batch-size 4").out)
		for _, layout := range []string{"--micro-batch-size 1", "--micro-batch-size 2", "--world-size 2 --micro-batch-size 2", "--world-size 4 --micro-batch-size 1 --use-distributed-optimizer",
			"--world-size 2 --tensor-model-parallel-size 2 --micro-batch-size 2", "--world-size 2 --tensor-model-parallel-size 2 --sequence-parallel --micro-batch-size 1",
			"--world-size 2 --pipeline-model-parallel-size 2 --micro-batch-size 1", "--world-size 2 --context-parallel-size 2 --micro-batch-size 2",
			"--world-size 4 --context-parallel-size 2 --tensor-model-parallel-size 2 --micro-batch-size 2", "--world-size 2 --zero-stage 3 --micro-batch-size 1"} {
			got := lossesOf(t, must(t, dir, line+layout).out)
			if len(got) != 4 || len(want) != 4 {
				t.Fatalf("%d and %d losses", len(got), len(want))
			}
			for i := range got {
				if math.Abs(got[i]-want[i]) > 2e-6*want[i] {
					t.Errorf("%s, packing %s: iteration %d: loss %.7g, want %.7g", layout, packing, i+1, got[i], want[i])
				}
			}
		}
	}
}

// Claim: the accuracy of an evaluation is the share of learned tokens that the model finds likeliest:
// after a tuning by heart all of them, before it few, the same in every layout.
func TestTokenAccuracy(t *testing.T) {
	c, dir := openTuned(t), t.TempDir()
	baseFolder(t, dir, c.dir, filepath.Join(golden.Dir(t, "chat"), "tokenizer.json"))
	row := "{\"messages\": [{\"role\": \"user\", \"content\": \"name\"}, {\"role\": \"assistant\", \"content\": \"the type and\"}]}\n"
	if err := os.WriteFile(filepath.Join(dir, "row.jsonl"), []byte(row), 0o644); err != nil {
		t.Fatal(err)
	}
	var before []float64
	for i, layout := range []string{"--micro-batch-size 4", "--world-size 2 --tensor-model-parallel-size 2 --sequence-parallel --micro-batch-size 2", "--world-size 4 --pipeline-model-parallel-size 2 --micro-batch-size 1",
		"--world-size 2 --context-parallel-size 2 --micro-batch-size 2"} {
		log := filepath.Join(dir, fmt.Sprint("log", i))
		must(t, dir, "--finetune-data DIR/row.jsonl --finetune-eval-data DIR/row.jsonl --eval-at-start "+tuneLine+"--lr 2e-2 --min-lr 2e-2 --train-iters 30 --log-interval 30 "+layout+" --log-jsonl "+log)
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		entries, err := telemetry.ReadJSONL(strings.NewReader(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		var found []float64
		for _, e := range entries {
			if e.Validation != "" {
				found = append(found, float64(*e.Accuracy))
			}
		}
		if len(found) != 2 || found[0] > 0.5 || found[1] != 1 {
			t.Errorf("%s: accuracies %v", layout, found)
			continue
		}
		if before = append(before, found[0]); found[0] != before[0] {
			t.Errorf("%s: accuracy %v before, one rank has %v", layout, found[0], before[0])
		}
	}
}

// Claim: a tuning that is stopped continues bit for bit, in the middle of an epoch too.
func TestTuningResumes(t *testing.T) {
	c, dir := openTuned(t), t.TempDir()
	baseFolder(t, dir, c.dir, filepath.Join(golden.Dir(t, "chat"), "tokenizer.json"))
	line := "--finetune-data " + filepath.Join(c.dir, "messages.jsonl") + " --finetune-eval-data " + filepath.Join(c.dir, "prompt-completion.jsonl") +
		" --eval-interval 5 --finetune-packing bfd --micro-batch-size 2 --world-size 2 --use-distributed-optimizer " + strings.ReplaceAll(tuneLine, "--no-data-shuffle", "") + "--save-interval 4 "
	full := must(t, dir, line+"--save DIR/whole")
	if n := strings.Count(full.out, "validation loss"); n < 2 {
		t.Errorf("%d evaluations in\n%s", n, full.out)
	}
	got := inTwoParts(t, dir, line)
	if a, b := strings.Join(got, "\n"), strings.Join(numbers(full.out), "\n"); a != b {
		t.Errorf("in parts\n%s\nat once\n%s", a, b)
	}
	if a, b := weights(t, filepath.Join(dir, "part")), weights(t, filepath.Join(dir, "whole")); a != b {
		t.Errorf("weights %s in parts, %s at once", a, b)
	}
}

// Claim: wrong flags and wrong rows of a tuning are one error that names the flag, or the file,
// the line and the field, before anything is trained.
func TestTuningRefusals(t *testing.T) {
	c, dir := openTuned(t), t.TempDir()
	baseFolder(t, dir, c.dir, filepath.Join(golden.Dir(t, "chat"), "tokenizer.json"))
	if err := os.WriteFile(filepath.Join(dir, "bad.jsonl"), []byte("{\"text\": \"a\"}\n{\"messages\": 1}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, w := range []struct{ flags, says string }{
		{"--finetune-data DIR/bad.jsonl", `DIR/bad.jsonl:2: field "messages": the value is not a list of messages`},
		{"--finetune-data DIR/none.jsonl", "DIR/none.jsonl does not exist"},
		{"--finetune-data DIR/bad.jsonl --mock-data", "--mock-data cannot be combined"},
		{"--finetune-data DIR/bad.jsonl --dataloader-type cyclic", "--dataloader-type cyclic cannot be combined with --finetune-data"},
		{"--finetune-data DIR/bad.jsonl --chat-template DIR/none", "--chat-template: "},
		{"--mock-data", "--tuning sft needs --finetune-data"},
	} {
		r := call(t, dir, tuneLine+"--micro-batch-size 1 "+w.flags)
		if r.err == nil || !strings.Contains(r.err.Error(), strings.ReplaceAll(w.says, "DIR", dir)) || strings.Contains(r.out, "iteration") {
			t.Errorf("%s: %v, want %s", w.flags, r.err, w.says)
		}
	}
}

// inTwoParts are the numbers of a run that saves to DIR/part, is stopped after its second
// iteration, and resumes.
func inTwoParts(t *testing.T, dir, line string) (got []string) {
	t.Helper()
	for _, stopAt := range []int{2, 0} {
		ctx, cancel := context.WithCancelCause(context.Background())
		r := callUntil(t, ctx, dir, line+"--save DIR/part --resume-from-save", func(text string) {
			if stopAt > 0 && strings.Contains(text, fmt.Sprintf("iteration %8d/", stopAt)) {
				cancel(errors.New("a test"))
			}
		})
		cancel(nil)
		if code := r.code(); stopAt > 0 && code != exitcode.Again || stopAt == 0 && r.err != nil {
			t.Fatalf("stop at %d: code %d: %v", stopAt, code, r.err)
		}
		got = append(got, numbers(r.out)...)
	}
	return got
}
