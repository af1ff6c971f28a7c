package pretrain

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monotron/internal/drawn"
	"monotron/internal/golden"
	"monotron/internal/safetensors"
)

// adaptLine is a tuning of DIR/base by an adapter.
func adaptLine(t *testing.T, dir string) string {
	t.Helper()
	c := openTuned(t)
	baseFolder(t, dir, c.dir, filepath.Join(golden.Dir(t, "chat"), "tokenizer.json"))
	return "--finetune-data " + filepath.Join(c.dir, "messages.jsonl") + " " + tuneLine + "--train-iters 4 --lr 1e-2 --min-lr 1e-2 "
}

// Claim: an adapter's losses and its tensors after four steps are the same in every layout, with
// dropout and recomputation too: each of A and B is cut with its base or summed over the ranks
// that hold it.
func TestAdapterInEveryLayout(t *testing.T) {
	for name, flags := range map[string]string{"lora": "--lora-rank 4 --lora-alpha 8 --lora-dropout 0.1 ", "dora": "--lora-rank 3 --use-dora --use-rslora --finetune-packing bfd "} {
		dir := t.TempDir()
		line := adaptLine(t, dir) + flags
		want := lossesOf(t, must(t, dir, line+"--micro-batch-size 4 --save DIR/one").out)
		adapter := openAdapter(t, filepath.Join(dir, "one", "adapter"))
		for i, layout := range drawn.Part(t, []string{"--micro-batch-size 1", "--world-size 2 --micro-batch-size 2 --use-distributed-optimizer",
			"--world-size 2 --tensor-model-parallel-size 2 --micro-batch-size 2", "--world-size 2 --tensor-model-parallel-size 2 --sequence-parallel --tp-comm-overlap --micro-batch-size 2",
			"--world-size 2 --pipeline-model-parallel-size 2 --micro-batch-size 1", "--world-size 2 --context-parallel-size 2 --micro-batch-size 2",
			"--world-size 4 --tensor-model-parallel-size 2 --micro-batch-size 1 --zero-stage 2",
			"--micro-batch-size 2 --recompute-granularity full --recompute-method uniform --recompute-num-layers 1", "--world-size 2 --zero-stage 3 --micro-batch-size 2"}, 3) {
			if name == "dora" && strings.Contains(layout, "stage 3") {
				continue // refused
			}
			save := fmt.Sprintf("save%d", i)
			got := lossesOf(t, must(t, dir, line+layout+" --save DIR/"+save).out)
			if len(got) != 4 || len(want) != 4 {
				t.Fatalf("%d and %d losses", len(got), len(want))
			}
			for i := range got {
				if math.Abs(got[i]-want[i]) > 2e-6*want[i] {
					t.Errorf("%s %s: iteration %d: loss %.7g, want %.7g", name, layout, i+1, got[i], want[i])
				}
			}
			sameAdapters(t, name+" "+layout, openAdapter(t, filepath.Join(dir, save, "adapter")), adapter)
		}
	}
}

func openAdapter(t *testing.T, dir string) *safetensors.File {
	t.Helper()
	f, err := safetensors.Open(filepath.Join(dir, "adapter_model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// Claim: a new adapter changes nothing: the first loss is the base's, bit for bit with LoRA, to
// rounding with DoRA; training moves it, and leaves the base's weights as they were.
func TestAdapterBeginsAsTheBase(t *testing.T) {
	dir := t.TempDir()
	line := adaptLine(t, dir) + "--micro-batch-size 2 "
	must(t, dir, line+"--log-jsonl DIR/log-base")
	base := *stepsOf(t, filepath.Join(dir, "log-base"))[0].LMLoss
	for flags, most := range map[string]float64{"--lora-rank 2": 0, "--lora-rank 2 --use-dora": 1e-6, "--bf16 --lora-rank 2": 2e-2} {
		name := strings.ReplaceAll(flags, " ", "")
		must(t, dir, line+flags+" --save DIR/"+name+" --log-jsonl DIR/log"+name)
		steps := stepsOf(t, filepath.Join(dir, "log"+name))
		if d := math.Abs(float64(*steps[0].LMLoss - base)); d > most || *steps[3].LMLoss == *steps[0].LMLoss {
			t.Errorf("%s: losses %v and %v, the base's is %v", flags, *steps[0].LMLoss, *steps[3].LMLoss, base)
		}
	}
	merged, before := inHF(t, filepath.Join(dir, "--lora-rank2")), inHF(t, filepath.Join(dir, "base"))
	for tensor, same := range map[string]bool{"model.embed_tokens.weight": true, "model.layers.1.input_layernorm.weight": true, "model.layers.1.mlp.up_proj.weight": false} {
		if d := off(merged(tensor), before(tensor)); (d == 0) != same {
			t.Errorf("%s has moved by %g of its norm", tensor, d)
		}
	}
}

// Claim: a tuning by an adapter that is stopped continues bit for bit, its dropout included; its
// PEFT folder gives the loss of the merged model.
func TestAdapterResumes(t *testing.T) {
	for _, flags := range []string{"--lora-rank 4 --lora-dropout 0.2 ", "--lora-rank 4 --use-dora --bf16 "} {
		dir := t.TempDir()
		line := adaptLine(t, dir) + flags + "--train-iters 6 --micro-batch-size 2 --world-size 2 --use-distributed-optimizer --save-interval 3 "
		full := numbers(must(t, dir, line+"--save DIR/whole").out)
		got := inTwoParts(t, dir, line)
		if a, b := strings.Join(got, "\n"), strings.Join(full, "\n"); a != b {
			t.Errorf("in parts\n%s\nat once\n%s", a, b)
		}
		if a, b := weights(t, filepath.Join(dir, "part")), weights(t, filepath.Join(dir, "whole")); a != b {
			t.Errorf("weights %s in parts, %s at once", a, b)
		}
		for _, file := range []string{"adapter_model.safetensors", "adapter_config.json"} {
			a, err1 := os.ReadFile(filepath.Join(dir, "part", "adapter", file))
			b, err2 := os.ReadFile(filepath.Join(dir, "whole", "adapter", file))
			if err := errors.Join(err1, err2); err != nil || string(a) != string(b) {
				t.Errorf("%s differs (%v)", file, err)
			}
		}
	}
	dir := t.TempDir()
	line := adaptLine(t, dir) + "--micro-batch-size 2 "
	want := lossesOf(t, must(t, dir, line+"--lora-rank 4 --save DIR/a --save-interval 2").out)
	must(t, dir, line+"--lora-rank 4 --save DIR/b --train-iters 2")
	next := lossesOf(t, must(t, dir, line+"--adapter DIR/b/adapter --train-iters 1").out)
	merged := lossesOf(t, must(t, dir, line+"--load "+hfFolder(t, filepath.Join(dir, "b"))+" --train-iters 1").out)
	if len(next) != 1 || len(merged) != 1 || math.Abs(next[0]-merged[0]) > 2e-6*merged[0] {
		t.Errorf("loss with the adapter %v, with its sums in the weights %v", next, merged)
	}
	if again := lossesOf(t, must(t, dir, line+"--train-iters 3 --load DIR/b --save DIR/d").out); len(again) != 1 || again[0] != want[2] {
		t.Errorf("losses %v of a run that goes on without --lora flags, at once %v", again, want)
	}
}

// Claim: flags of adapters that do not go together, and adapters that do not fit, are one error.
func TestAdapterRefusals(t *testing.T) {
	dir := t.TempDir()
	line := adaptLine(t, dir) + "--micro-batch-size 2 "
	must(t, dir, line+"--lora-rank 2 --save DIR/save --train-iters 1")
	for flags, says := range map[string]string{
		"--lora-alpha 3": "--lora-alpha needs --lora-rank or --adapter",
		"--use-dora":     "--use-dora needs --lora-rank or --adapter",
		"--lora-rank 2 --lora-target-modules embed_tokens":        "target model.embed_tokens: the embedding and the output layer of this model are one weight",
		"--lora-rank 2 --lora-target-modules q_proj,lm_head":      "target lm_head: the embedding and the output layer of this model are one weight",
		"--lora-rank 2 --lora-target-modules q_prj":               `target module "q_prj" matches no module of the model; the names of modules end with down_proj,`,
		"--lora-rank 2 --use-dora --lora-dropout 0.1":             "DoRA with a dropout of 0.1 is not supported",
		"--lora-rank 3 --adapter DIR/save/adapter":                "has rank 2",
		"--adapter DIR/none":                                      "no adapter_config.json",
		"--lora-rank 2 --ckpt-format torch --save DIR/x":          "--ckpt-format torch cannot be combined with an adapter",
		"--load DIR/save --save DIR/save --lora-rank 3":           "contains an adapter of rank 2",
		"--lora-rank 2 --use-dora --world-size 2 --zero-stage 3 ": "to start a new adapter, --use-dora needs complete weights",
	} {
		r := call(t, dir, line+flags)
		if r.err == nil || !strings.Contains(r.err.Error(), says) || strings.Contains(r.out, "iteration") {
			t.Errorf("%s: %v, want %s", flags, r.err, says)
		}
	}
}

// Claim (docs/finetuning.md): over a base in NF4 the device has the weights that are not packed once, the adapter, and of
// the packed ones what one product uses, as the plan says.
func TestMemoryOverAPackedBase(t *testing.T) {
	dir := t.TempDir()
	line := adaptLine(t, dir) + "--micro-batch-size 2 --lora-rank 4 --train-iters 2 "
	var parameters []float64
	for _, flags := range []string{"--log-jsonl DIR/plain", "--log-jsonl DIR/packed --quantize-base nf4"} {
		must(t, dir, line+flags)
		step := stepsOf(t, filepath.Join(dir, []string{"plain", "packed"}[len(parameters)]))[1]
		if parameters = append(parameters, float64(step.MemoryByPurpose["parameters"])); step.MemoryBytes != step.PlannedMemoryBytes {
			t.Errorf("%s: %d bytes are taken, %d planned", flags, step.MemoryBytes, step.PlannedMemoryBytes)
		}
	}
	// Linear layers of 2 layers, f32: qkv [32, 16], proj [16, 16], fc1 [80, 16] and fc2 [16, 40]; fc1 is the largest.
	const all, largest = 2 * (32*16 + 16*16 + 80*16 + 16*40) * 4, 80 * 16 * 4
	if saved := parameters[0] - parameters[1]; saved != all-largest {
		t.Errorf("parameters take %v bytes, and %v over a packed base: %v less, want %d", parameters[0], parameters[1], saved, all-largest)
	}
}

// Claim (docs/finetuning.md): --quantize-base trains over rounded weights, with other losses
// than the base's: the same in every layout, whether the weights lie in memory in their codes or
// unpacked; a stopped run continues with them.
func TestAdapterOverAQuantizedBase(t *testing.T) {
	dir := t.TempDir()
	plain := adaptLine(t, dir) + "--micro-batch-size 2 --lora-rank 4 --seed 7 "
	line := plain + "--quantize-base nf4 --double-quant "
	losses := func(flags string) string { return fmt.Sprint(lossesOf(t, must(t, dir, flags).out)) }
	want := losses(line + "--save DIR/one")
	if want == losses(plain+"--save DIR/plain") {
		t.Error("nothing was rounded")
	}
	if notes := must(t, dir, line+"--train-iters 1 --save DIR/note").notes; !strings.Contains(notes, "the frozen weights use") {
		t.Errorf("nothing lies in codes: %s", notes)
	}
	for i, layout := range []string{"--world-size 2 --tensor-model-parallel-size 2", "--world-size 2 --zero-stage 3", "--world-size 2 --zero-stage 2 --micro-batch-size 1", "--world-size 2 --pipeline-model-parallel-size 2 --micro-batch-size 1",
		"--optimizer-cpu-offload"} { // the last leaves the weights unpacked
		if got := losses(line + layout + fmt.Sprintf(" --save DIR/layout%d", i)); got != want {
			t.Errorf("%s: %s, want %s", layout, got, want)
		}
	}
	must(t, dir, line+"--save DIR/part --exit-interval 2")
	if rest := losses(strings.Replace(line, "--load DIR/base", "--load DIR/part", 1) + "--save DIR/part"); !strings.HasSuffix(want, strings.TrimPrefix(rest, "[")) {
		t.Errorf("continued %s, want the end of %s", rest, want)
	}
	for flags, says := range map[string]string{"--quantize-base nf4 --lora-rank 0": "--quantize-base needs --lora-rank or --adapter", "--double-quant": "--double-quant needs --quantize-base nf4"} {
		if r := call(t, dir, plain+flags); r.err == nil || !strings.Contains(r.err.Error(), says) {
			t.Errorf("%s: %v", flags, r.err)
		}
	}
}
