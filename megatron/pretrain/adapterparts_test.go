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
	"monotron/internal/exitcode"
	"monotron/internal/safetensors"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/native"
	"monotron/megatron/checkpoint/peft"
)

// Flags of models that DIR/start has in tests of adapters.
const (
	untied = "--num-layers 2 --hidden-size 32 --num-attention-heads 4 --group-query-attention --num-query-groups 2 --max-position-embeddings 64 --position-embedding-type rope --swiglu --ffn-hidden-size 48 " +
		"--disable-bias-linear --normalization RMSNorm --untie-embeddings-and-output-weights --make-vocab-size-divisible-by 8 --attention-dropout 0 --hidden-dropout 0 --init-method-std 0.1 "
	untiedMixture = untied + "--qk-layernorm --num-experts 4 --moe-router-topk 2 --moe-ffn-hidden-size 16 --moe-router-load-balancing-type none --moe-aux-loss-coeff 0 --moe-router-pre-softmax "
)

// startLine makes DIR/start, a model of these flags, and is a tuning of it.
func startLine(t *testing.T, dir, model string) string {
	t.Helper()
	line := adaptLine(t, dir)
	must(t, dir, strings.Replace(line, "--load DIR/base", "--tokenizer-type HuggingFaceTokenizer --tokenizer-model DIR/base", 1)+model+"--micro-batch-size 2 --train-iters 1 --save DIR/start")
	return strings.Replace(line, "--load DIR/base", "--load DIR/start", 1)
}

// Claim: adapters on embedding and output layer, weights that are trained with an adapter, and
// adapters on experts train alike in every layout, and continue bit for bit after a stop.
func TestAdapterPartsInEveryLayout(t *testing.T) {
	dense := []string{"--micro-batch-size 1", "--world-size 2 --micro-batch-size 2 --use-distributed-optimizer", "--world-size 2 --tensor-model-parallel-size 2 --micro-batch-size 2",
		"--world-size 2 --tensor-model-parallel-size 2 --sequence-parallel --micro-batch-size 2", "--world-size 2 --pipeline-model-parallel-size 2 --micro-batch-size 1",
		"--world-size 2 --context-parallel-size 2 --micro-batch-size 2", "--world-size 4 --tensor-model-parallel-size 2 --micro-batch-size 1 --zero-stage 2",
		"--world-size 2 --zero-stage 3 --micro-batch-size 2", "--micro-batch-size 2 --recompute-granularity full --recompute-method uniform --recompute-num-layers 1"}
	mixture := []string{"--micro-batch-size 1", "--world-size 2 --expert-model-parallel-size 2 --micro-batch-size 2", "--world-size 2 --tensor-model-parallel-size 2 --sequence-parallel --micro-batch-size 2",
		"--world-size 2 --tensor-model-parallel-size 2 --sequence-parallel --expert-model-parallel-size 2 --expert-tensor-parallel-size 1 --micro-batch-size 2",
		"--world-size 4 --tensor-model-parallel-size 2 --sequence-parallel --expert-model-parallel-size 2 --expert-tensor-parallel-size 2 --micro-batch-size 1 --use-distributed-optimizer",
		"--world-size 2 --pipeline-model-parallel-size 2 --micro-batch-size 2", "--world-size 2 --zero-stage 3 --micro-batch-size 2",
		"--world-size 4 --expert-model-parallel-size 2 --zero-stage 2 --micro-batch-size 1"}
	for name, c := range map[string]struct {
		model, flags string
		layouts      []string
	}{
		"tables":  {untied, "--lora-rank 2 --lora-alpha 4 --lora-dropout 0.1 --lora-target-modules embed_tokens,lm_head,v_proj ", dense},
		"saved":   {untied, "--lora-rank 2 --lora-target-modules q_proj --lora-modules-to-save lm_head,embed_tokens,model.norm,o_proj ", dense},
		"experts": {untiedMixture, "--lora-rank 2 --lora-alpha 8 ", mixture},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			line := startLine(t, dir, c.model) + c.flags
			want := lossesOf(t, must(t, dir, line+"--micro-batch-size 2 --save DIR/one").out)
			adapter := openAdapter(t, filepath.Join(dir, "one", "adapter"))
			if len(want) != 4 {
				t.Fatalf("losses %v", want)
			}
			for i, layout := range drawn.Part(t, c.layouts, 3) {
				save := fmt.Sprintf("save%d", i)
				got := lossesOf(t, must(t, dir, line+layout+" --save DIR/"+save).out)
				for i := range want {
					if len(got) != 4 || math.Abs(got[i]-want[i]) > 2e-6*want[i] {
						t.Fatalf("%s: losses %v, want %v", layout, got, want)
					}
				}
				sameAdapters(t, layout, openAdapter(t, filepath.Join(dir, save, "adapter")), adapter)
			}
			resumes(t, dir, line+"--micro-batch-size 1 --world-size 2 --use-distributed-optimizer --save-interval 2 ")
			resumes(t, dir, line+"--micro-batch-size 2 --bf16 --save-adapter-only --save-interval 2 ")
		})
	}
}

// sameAdapters compares the tensors of two adapters, to rounding.
func sameAdapters(t *testing.T, what string, a, b *safetensors.File) {
	t.Helper()
	if len(a.Names()) != len(b.Names()) {
		t.Fatalf("%s: %d tensors, want %d", what, len(a.Names()), len(b.Names()))
	}
	for _, tensor := range b.Names() {
		x, err1 := a.Float32(tensor)
		y, err2 := b.Float32(tensor)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		if d := off(x, y); !(d < 2e-4) {
			t.Errorf("%s: %s is off by %.2g of its norm", what, tensor, d)
		}
	}
}

// resumes compares a run in two parts with one at once.
func resumes(t *testing.T, dir, line string) {
	t.Helper()
	for _, name := range []string{"whole", "part"} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	full := numbers(must(t, dir, line+"--save DIR/whole").out)
	must(t, dir, line+"--save DIR/part --exit-interval 2")
	rest := numbers(must(t, dir, strings.Replace(line, "--load DIR/start", "--load DIR/part", 1)+"--save DIR/part").out)
	if len(full) != 4 || len(rest) != 2 || strings.Join(rest, "\n") != strings.Join(full[2:], "\n") {
		t.Errorf("%s: after a stop\n%s\nat once\n%s", line, strings.Join(rest, "\n"), strings.Join(full, "\n"))
	}
	for _, file := range []string{"adapter_model.safetensors", "adapter_config.json"} {
		a, err1 := os.ReadFile(filepath.Join(dir, "part", "adapter", file))
		b, err2 := os.ReadFile(filepath.Join(dir, "whole", "adapter", file))
		if err := errors.Join(err1, err2); err != nil || string(a) != string(b) {
			t.Errorf("%s: %s differs (%v)", line, file, err)
		}
	}
}

// Claim: an adapter's folder with such parts trains further from the same loss as the merged model;
// a checkpoint of --save-adapter-only has the weights that were trained with it, and no others.
func TestAdapterPartsOfAFolder(t *testing.T) {
	for model, flags := range map[string]string{untied: "--lora-rank 2 --lora-target-modules embed_tokens,lm_head,v_proj --lora-modules-to-save model.norm,o_proj ",
		untiedMixture: "--lora-rank 2 --lora-modules-to-save lm_head "} {
		dir := t.TempDir()
		line := startLine(t, dir, model) + "--micro-batch-size 2 "
		must(t, dir, line+flags+"--save DIR/save --save-adapter-only")
		next := lossesOf(t, must(t, dir, line+"--train-iters 1 --adapter DIR/save/adapter").out)
		merged := lossesOf(t, must(t, dir, line+"--train-iters 1 --load "+hfFolder(t, filepath.Join(dir, "save"))).out)
		base := opened(t, filepath.Join(dir, "start"))
		f, err := peft.Open(filepath.Join(dir, "save", "adapter"), base.Info().Model, "")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		x, y := peft.Merge(checkpoint.WeightsOnly(base), f), peft.MergeOwn(opened(t, filepath.Join(dir, "save")))
		for _, tensor := range x.Tensors() {
			if string(rawOf(t, x, tensor)) != string(rawOf(t, y, tensor)) {
				t.Errorf("%s: the folder and the checkpoint are merged apart", tensor.Name)
			}
		}
		if len(next) != 1 || len(merged) != 1 || math.Abs(next[0]-merged[0]) > 2e-6*merged[0] {
			t.Errorf("%s: loss with the adapter %v, with its sums in the weights %v", flags, next, merged)
		}
		m, err := native.Open(filepath.Join(dir, "save"), -1)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		kept := ""
		for _, tensor := range m.Manifest.Tensors {
			kept += tensor.Name + " "
		}
		if strings.Contains(kept, "model.decoder.layers.0.self_attention.linear_qkv") || strings.Contains(kept, "model.decoder.final_layernorm") != strings.Contains(flags, "model.norm") ||
			strings.Contains(kept, "optimizer.exp_avg.output_layer.weight") != strings.Contains(flags, "save lm_head") {
			t.Errorf("%s: the checkpoint holds %s", flags, kept)
		}
	}
}

// Claim: what cannot be trained with or by an adapter is one error that names the module.
func TestAdapterPartsRefusals(t *testing.T) {
	dir := t.TempDir()
	line := startLine(t, dir, untied) + "--micro-batch-size 2 --lora-rank 2 "
	mixtureDir := t.TempDir()
	mixture := startLine(t, mixtureDir, untiedMixture) + "--micro-batch-size 2 --lora-rank 2 "
	for flags, says := range map[string]string{
		"--lora-modules-to-save k_proj":                                                     "name all of them or none",
		"--lora-modules-to-save head":                                                       "", // PEFT's rule: the end of lm_head
		"--lora-modules-to-save nothing":                                                    `module to save "nothing" matches no module: no module name in the model ends with it`,
		"--lora-target-parameters mlp.experts.down_proj":                                    `target parameter "mlp.experts.down_proj" matches no experts`,
		"--lora-target-modules none":                                                        "no layer is left for an adapter",
		"--use-dora --lora-target-modules lm_head":                                          "target lm_head: DoRA on embeddings and output layers is not supported",
		"--quantize-base nf4 --lora-target-modules q_proj --lora-modules-to-save o_proj":    "leave linear layers out of --lora-modules-to-save",
		"--lora-train-bias some":                                                            "--lora-train-bias must be none, all or lora_only, not some",
		"mixture --use-dora":                                                                "experts support neither DoRA nor dropout",
		"mixture --lora-dropout 0.1":                                                        "experts support neither DoRA nor dropout",
		"mixture --lora-target-modules gate":                                                "target model.layers.0.mlp.gate: only embeddings, output layers",
		"mixture --lora-target-modules q_proj --lora-modules-to-save experts":               "experts cannot be trained in full together with an adapter",
		"mixture --lora-target-modules none --lora-target-parameters mlp.experts.w1":        `target parameter "mlp.experts.w1" matches no experts`,
		"mixture --lora-target-modules q_proj --lora-modules-to-save mlp.gate --bf16":       "",
		"mixture --lora-target-modules none --lora-target-parameters mlp.experts.down_proj": "",
	} {
		flags, mixed := strings.CutPrefix(flags, "mixture ")
		at, begin := dir, line
		if mixed {
			at, begin = mixtureDir, mixture
		}
		r := call(t, at, begin+"--train-iters 1 "+flags)
		if (r.err == nil) != (says == "") || r.err != nil && (!strings.Contains(r.err.Error(), says) || r.code() != exitcode.Usage) {
			t.Errorf("%s: %v, want %q", flags, r.err, says)
		}
	}
}
