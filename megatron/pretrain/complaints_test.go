package pretrain

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"monotron/internal/golden"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/gguf"
	"monotron/megatron/checkpoint/hf"
	"monotron/megatron/checkpoint/peft"
	"monotron/mpu"
)

// Claim: what users of other programs report most of tuning does not happen here; each is named after reports of
// TRL (T), transformers (tf), verl (V), Unsloth (U), PEFT (P), Ollama (O) and llama.cpp (L).
func TestComplaints(t *testing.T) {
	for _, c := range []struct {
		name string
		test func(t *testing.T, dir, line string)
	}{
		{"the end of an answer is never learned (T#1623)", endIsLearned},
		{"padding by the end token hides the real one (T#3091)", paddingByTheEnd},
		{"labels are off by one token (V#3562, V#3287)", labelsInPlace},
		{"packed rows see each other (T#1230, T#3067)", packedRowsAreApart},
		{"accumulation changes the loss (tf#34191, T#5619)", accumulationChangesNothing},
		{"the merged model is the base (U#869)", mergeIsNotTheBase},
		{"an adapter on a tied head goes wrong silently (P#1035)", tiedHeadIsRefused},
		{"an exported model does not stop (O#6821, O#6823, L#7062)", exportStops},
		{"rewards stay at 0 (T#1311, T#1627)", rewardsMove},
		{"sampler and trainer disagree (T#4159, T#6789)", samplerAgrees},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			from := openTuned(t)
			baseFolder(t, dir, from.dir, filepath.Join(golden.Dir(t, "chat"), "tokenizer.json"))
			c.test(t, dir, tuneLine+"--train-iters 1 ")
		})
	}
}

// put writes rows to DIR/rows.jsonl and gives the flag that names it.
func put(t *testing.T, dir string, rows ...string) string {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "rows.jsonl"), []byte(strings.Join(rows, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return "--finetune-data DIR/rows.jsonl "
}

func endIsLearned(t *testing.T, dir, line string) {
	for row, want := range map[string]string{`{"prompt": "a", "completion": " b"}`: "</s>", `{"text": "a b"}`: "</s>", `{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}`: "<|im_end|>"} {
		r := must(t, dir, line+put(t, dir, row)+"--global-batch-size 1 --micro-batch-size 1")
		if !strings.Contains(r.notes, fmt.Sprintf("the last learned token of the first row is %q", want)) {
			t.Errorf("%s: %s", row, r.notes)
		}
	}
}

func paddingByTheEnd(t *testing.T, dir, line string) {
	line += put(t, dir, `{"prompt": "a", "completion": " b c d"}`, `{"prompt": "a", "completion": " b"}`) + "--global-batch-size 2 --micro-batch-size 2 --train-iters 2 "
	want := numbers(must(t, dir, line).out)
	path := filepath.Join(dir, "base", "tokenizer_config.json")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(text), `"<pad>"`, `"</s>"`, 1)
	if err := os.WriteFile(path, []byte(changed), 0o644); err != nil || changed == string(text) {
		t.Fatal(err, changed)
	}
	r := must(t, dir, line)
	if got := numbers(r.out); len(got) != 2 || !slices.Equal(got, want) || !strings.Contains(r.notes, `is "</s>"`) {
		t.Errorf("losses %v, with another padding %v", got, want)
	}
}

// labelsInPlace: the loss of a row is that of its tokens one by one.
func labelsInPlace(t *testing.T, dir, line string) {
	ids := []int{12, 7, 33, 21, 9}
	loss := func(learned func(i int) bool) float64 {
		var labels []string
		for i, id := range ids {
			if !learned(i) {
				id = -100
			}
			labels = append(labels, fmt.Sprint(id))
		}
		row := fmt.Sprintf(`{"input_ids": %s, "labels": [%s]}`, strings.Join(strings.Fields(fmt.Sprint(ids)), ","), strings.Join(labels, ","))
		list := lossesOf(t, must(t, dir, line+put(t, dir, row)+"--global-batch-size 1 --micro-batch-size 1 --lr 1e-30 --min-lr 0").out)
		if len(list) != 1 {
			t.Fatalf("losses %v", list)
		}
		return list[0]
	}
	full, sum := loss(func(int) bool { return true }), 0.0
	for k := 1; k < len(ids); k++ {
		sum += loss(func(i int) bool { return i == k })
	}
	if mean := sum / float64(len(ids)-1); math.Abs(full-mean) > 2e-6*mean {
		t.Errorf("the row's loss is %g, the mean of its tokens' %g", full, mean)
	}
}

func packedRowsAreApart(t *testing.T, dir, line string) {
	line = strings.Replace(line, "--optimizer adam", "--optimizer sgd --sgd-momentum 0", 1) + "--lr 1024 --min-lr 1024 " +
		put(t, dir, `{"prompt": "a", "completion": " b c"}`, `{"prompt": "d e", "completion": " f"}`, `{"text": "g h"}`, `{"prompt": "i", "completion": " j k"}`)
	alone := must(t, dir, line+"--global-batch-size 4 --micro-batch-size 1 --save DIR/alone")
	packed := must(t, dir, line+"--global-batch-size 1 --micro-batch-size 1 --finetune-packing bfd --save DIR/packed")
	a, b := lossesOf(t, alone.out), lossesOf(t, packed.out)
	if len(a) != 1 || len(b) != 1 || math.Abs(a[0]-b[0]) > 2e-6*a[0] {
		t.Errorf("losses %v and %v", a, b)
	}
	before, x, y := inHF(t, filepath.Join(dir, "base")), inHF(t, filepath.Join(dir, "alone")), inHF(t, filepath.Join(dir, "packed"))
	for _, name := range []string{"model.layers.0.self_attn.q_proj.weight", "model.layers.1.mlp.down_proj.weight", "model.embed_tokens.weight"} {
		start, g, h := before(name), x(name), y(name)
		for i := range start {
			g[i], h[i] = g[i]-start[i], h[i]-start[i]
		}
		if d := off(h, g); !(d < 2e-5) {
			t.Errorf("the gradient of %s is off by %.2g of its norm", name, d)
		}
	}
}

func accumulationChangesNothing(t *testing.T, dir, line string) {
	var rows []string
	for i := range 8 {
		rows = append(rows, fmt.Sprintf(`{"prompt": "a", "completion": "%s"}`, strings.Repeat(" b", 1+3*i)))
	}
	line += put(t, dir, rows...) + "--global-batch-size 8 --train-iters 3 --log-jsonl DIR/"
	for i, layout := range []string{"--micro-batch-size 8", "--micro-batch-size 1", "--micro-batch-size 2", "--micro-batch-size 4", "--micro-batch-size 2 --world-size 2", "--micro-batch-size 2 --world-size 4", "--micro-batch-size 1 --world-size 2 --use-distributed-optimizer"} {
		must(t, dir, line+fmt.Sprint("log", i, " ")+layout)
		want, got := stepsOf(t, filepath.Join(dir, "log0")), stepsOf(t, filepath.Join(dir, fmt.Sprint("log", i)))
		for k := range want {
			if len(got) != 3 || !near(float64(*got[k].LMLoss), float64(*want[k].LMLoss), 1e-6) || !near(float64(*got[k].GradNorm), float64(*want[k].GradNorm), 1e-5) {
				t.Errorf("%s: step %d: loss %v, norm %v; want %v, %v", layout, k+1, *got[k].LMLoss, *got[k].GradNorm, *want[k].LMLoss, *want[k].GradNorm)
			}
		}
	}
}

func mergeIsNotTheBase(t *testing.T, dir, line string) {
	must(t, dir, line+put(t, dir, `{"prompt": "a", "completion": " b c"}`)+"--global-batch-size 1 --micro-batch-size 1 --lora-rank 2 --save DIR/save")
	base, err := hf.OpenSource(filepath.Join(dir, "base"), checkpoint.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer base.Close()
	f, err := peft.Open(filepath.Join(dir, "save", "adapter"), base.Info().Model, "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	merged, moved := peft.Merge(base, f), 0
	for _, tensor := range base.Tensors() {
		a, b := make([]byte, checkpoint.Volume(tensor.Shape)*4), make([]byte, checkpoint.Volume(tensor.Shape)*4)
		full := mpu.Piece{From: make([]int64, len(tensor.Shape)), Size: tensor.Shape}
		if err := base.Read(tensor.Name, full, a); err != nil {
			t.Fatal(err)
		}
		if err := merged.Read(tensor.Name, full, b); err != nil {
			t.Fatal(err)
		}
		if linear := strings.Contains(tensor.Name, ".linear_") && !strings.Contains(tensor.Name, "norm"); linear == slices.Equal(a, b) {
			t.Errorf("%s: equal to the base's: %v", tensor.Name, slices.Equal(a, b))
		} else if linear {
			moved++
		}
	}
	if moved != 8 {
		t.Errorf("%d weights are merged", moved)
	}
}

func tiedHeadIsRefused(t *testing.T, dir, line string) {
	r := call(t, dir, line+put(t, dir, `{"text": "a b"}`)+"--global-batch-size 1 --micro-batch-size 1 --lora-rank 2 --lora-target-modules lm_head")
	if r.err == nil || !strings.Contains(r.err.Error(), "of this model are one weight") {
		t.Errorf("%v", r.err)
	}
}

func exportStops(t *testing.T, dir, _ string) {
	base, err := hf.OpenSource(filepath.Join(dir, "base"), checkpoint.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer base.Close()
	path := filepath.Join(dir, "model.gguf")
	if _, err := gguf.Write(context.Background(), path, base, checkpoint.WriteOptions{Tokenizer: filepath.Join(dir, "base")}); err != nil {
		t.Fatal(err)
	}
	text, _, err := gguf.Modelfile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"FROM ", "TEMPLATE ", `PARAMETER stop "</s>"`, `PARAMETER stop "<|im_end|>"`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}

func rewardsMove(t *testing.T, dir, line string) {
	line = strings.Replace(line, "--tuning sft ", "", 1) + put(t, dir, `{"prompt": "a", "chosen": " b c", "rejected": " d"}`, `{"prompt": "e", "chosen": " f", "rejected": " g h"}`) +
		"--tuning dpo --global-batch-size 2 --micro-batch-size 2 --train-iters 3 "
	must(t, dir, line+"--log-jsonl DIR/log")
	for i, s := range stepsOf(t, filepath.Join(dir, "log")) {
		if first := i == 0; first != (math.Abs(float64(*s.LMLoss)-math.Ln2) < 1e-15) || first != is(s.RewardsChosen, 0) || !first && !(*s.RewardsMargins > 0) {
			t.Errorf("step %d: loss %v, rewards %v, margins %v", i+1, *s.LMLoss, *s.RewardsChosen, *s.RewardsMargins)
		}
	}
	if r := call(t, dir, line+"--beta 0"); r.err == nil || !strings.Contains(r.err.Error(), "--beta") {
		t.Errorf("a beta of 0: %v", r.err)
	}
}

func samplerAgrees(t *testing.T, dir, line string) {
	line = strings.Replace(line, "--tuning sft ", "", 1) + put(t, dir, `{"prompt": "a b"}`, `{"prompt": "c"}`)
	must(t, dir, line+"--tuning grpo --reward-pattern a --grpo-group-size 2 --global-batch-size 4 --micro-batch-size 2 --max-completion-length 8 --log-jsonl DIR/log")
	if s := stepsOf(t, filepath.Join(dir, "log"))[0]; !is(s.LogPMostApart, 0) || !is(s.RatioMin, 1) || !is(s.RatioMax, 1) {
		t.Errorf("%+v", s.Rewarded)
	}
}
