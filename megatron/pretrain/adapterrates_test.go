package pretrain

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Claim: --loraplus-lr-ratio multiplies the rate of B alone, in every layout: after one step of SGD from a
// zero B, B is that many times what it is without, and A, whose gradient is then 0, stays; with AdamW as well.
func TestLoRAPlus(t *testing.T) {
	dir := t.TempDir()
	line := strings.Replace(adaptLine(t, dir), "--optimizer adam", "--optimizer sgd --sgd-momentum 0", 1) + "--lora-rank 2 --train-iters 1 "
	must(t, dir, line+"--micro-batch-size 2 --save DIR/plain")
	plain := openAdapter(t, filepath.Join(dir, "plain", "adapter"))
	for i, layout := range []string{"--micro-batch-size 2", "--world-size 2 --micro-batch-size 1 --use-distributed-optimizer", "--world-size 2 --tensor-model-parallel-size 2 --micro-batch-size 2", "--world-size 2 --zero-stage 3 --micro-batch-size 2"} {
		save := filepath.Join(dir, "save"+string(rune('a'+i)))
		must(t, dir, line+layout+" --loraplus-lr-ratio 16 --save "+save)
		got, moved := openAdapter(t, filepath.Join(save, "adapter")), false
		for _, name := range plain.Names() {
			a, err1 := plain.Float32(name)
			b, err2 := got.Float32(name)
			if err1 != nil || err2 != nil {
				t.Fatal(err1, err2)
			}
			factor := 1.0
			if strings.Contains(name, "lora_B") {
				factor = 16
			}
			for k := range a {
				moved = moved || factor > 1 && a[k] != 0
				if math.Abs(float64(b[k])-factor*float64(a[k])) > 2e-5*factor*math.Abs(float64(a[k]))+1e-9 {
					t.Fatalf("%s: %s[%d] is %g, want %g times %g", layout, name, k, b[k], factor, a[k])
				}
			}
		}
		if !moved {
			t.Errorf("%s: B has not moved", layout)
		}
	}
}

// Claim: --lora-rank-pattern and --lora-alpha-pattern give modules ranks and scales of their own: the
// files say so under PEFT's names, an adapter of these files continues, and the last adapter equals that of a
// run that went through at once.
func TestRankPatterns(t *testing.T) {
	dir := t.TempDir()
	line := adaptLine(t, dir) + "--micro-batch-size 2 --lora-target-modules q_proj,down_proj "
	patterns := "--lora-rank 2 --lora-alpha 4 --lora-rank-pattern layers.1.self_attn.q_proj=5 down_proj=3 --lora-alpha-pattern down_proj=12 "
	must(t, dir, line+patterns+"--save DIR/save")
	f := openAdapter(t, filepath.Join(dir, "save", "adapter"))
	for module, rank := range map[string]int64{"0.self_attn.q_proj": 2, "1.self_attn.q_proj": 5, "0.mlp.down_proj": 3, "1.mlp.down_proj": 3} {
		info, ok := f.Info("base_model.model.model.layers." + module + ".lora_A.weight")
		if !ok || info.Shape[0] != rank {
			t.Errorf("%s: %v, want the rank %d", module, info.Shape, rank)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "save", "adapter", "adapter_config.json"))
	if err != nil {
		t.Fatal(err)
	}
	flat := strings.Join(strings.Fields(string(text)), "")
	for _, want := range []string{`"rank_pattern":{"layers.1.self_attn.q_proj":5,"down_proj":3}`, `"alpha_pattern":{"down_proj":12}`, `"r":2`} {
		if !strings.Contains(flat, want) {
			t.Errorf("no %s in %s", want, flat)
		}
	}
	more := lossesOf(t, must(t, dir, line+"--adapter DIR/save/adapter --save DIR/more").out)
	again := lossesOf(t, must(t, dir, line+"--adapter DIR/save/adapter --save DIR/again").out)
	if len(more) != 4 || !slices.Equal(more, again) {
		t.Errorf("%v and %v", more, again)
	}
	for flags, says := range map[string]string{"--lora-rank 2 --lora-rank-pattern q_proj": "write NAME=NUMBER", "--lora-rank 2 --lora-rank-pattern (=3": "--lora-rank-pattern (=3", "--lora-rank 2 --lora-rank-pattern q_proj=2.5": "must be an integer",
		"--lora-rank 2 --lora-rank-pattern q_proy=3": `--lora-rank-pattern: "q_proy" applies to no module with an adapter`, "--lora-rank 2 --lora-alpha-pattern proj=3 .*_proj=4 q_proj=5": `--lora-alpha-pattern: "proj" applies to no module`,
		"--lora-rank 2 --lora-alpha-pattern .*_proj=4 q_proj=5": `--lora-alpha-pattern: "q_proj" applies to no module`} {
		if r := call(t, dir, line+flags); r.err == nil || !strings.Contains(r.err.Error(), says) {
			t.Errorf("%s: %v", flags, r.err)
		}
	}
}
