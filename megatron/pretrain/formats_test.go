package pretrain

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"monotron/internal/exitcode"
	"monotron/internal/golden"
	"monotron/megatron/arguments"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/all"
	"monotron/megatron/checkpoint/hf"
	"monotron/megatron/training"
)

// Claim (docs/checkpoints.md): a run that saves in Megatron's formats continues from
// them bit for bit, as from our own: losses, and the weights at the end.
func TestMegatronFormatsContinueBitForBit(t *testing.T) {
	for name, flags := range map[string]string{
		"torch":                             "--ckpt-format torch",
		"torch bf16":                        "--ckpt-format torch --bf16",
		"torch fp16":                        "--ckpt-format torch --fp16 --initial-loss-scale 65536 --loss-scale-window 2 --hysteresis 1",
		"torch_dist":                        "--ckpt-format torch_dist",
		"torch_dist bf16":                   "--ckpt-format torch_dist --bf16",
		"torch, tensors and stages":         "--ckpt-format torch --world-size 4 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2",
		"torch, sharded optimizer":          "--ckpt-format torch --world-size 2 --use-distributed-optimizer --bf16",
		"torch_dist, three ways, meanwhile": "--ckpt-format torch_dist --async-save --world-size 4 --tensor-model-parallel-size 2 --use-distributed-optimizer",
		"torch, meanwhile":                  "--ckpt-format torch --async-save",
		"llama":                             "--ckpt-format torch --swiglu --ffn-hidden-size 24 --normalization RMSNorm --position-embedding-type rope --disable-bias-linear --untie-embeddings-and-output-weights --group-query-attention --num-query-groups 1",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			base := tiny + someData + flags + " --save-interval 3 "
			native := strings.ReplaceAll(strings.ReplaceAll(base, "--ckpt-format torch_dist", ""), "--ckpt-format torch", "")
			full := numbers(must(t, dir, native+"--save DIR/whole").out)
			first := must(t, dir, base+"--save DIR/part --exit-interval 3").out
			second := must(t, dir, native+"--load DIR/part --save DIR/end --train-iters 6").out
			got := append(numbers(first), numbers(second)...)
			if a, b := strings.Join(got, "\n"), strings.Join(full, "\n"); a != b {
				t.Errorf("in parts\n%s\nat once\n%s", a, b)
			}
			if have, want := weights(t, filepath.Join(dir, "end")), weights(t, filepath.Join(dir, "whole")); have != want {
				t.Errorf("weights %s, want %s", have, want)
			}
		})
	}
}

// Claim (docs/checkpoints.md): a run that continues from an earlier checkpoint of its own folder, with another
// learning rate, replaces the later ones as it comes to them.
func TestRewoundRunReplacesCheckpoints(t *testing.T) {
	for _, format := range []string{"native", "torch", "torch_dist"} {
		dir := t.TempDir()
		base := tiny + someData + "--save DIR/run --save-interval 2 --ckpt-format " + format
		must(t, dir, base)
		alone := must(t, dir, base+" --load DIR/run --ckpt-step 2 --save DIR/apart --lr 1e-3 --override-opt-param-scheduler")
		again := must(t, dir, base+" --load DIR/run --ckpt-step 2 --lr 1e-3 --override-opt-param-scheduler")
		if a, b := strings.Join(numbers(again.out), "\n"), strings.Join(numbers(alone.out), "\n"); a != b {
			t.Errorf("%s: in the same folder\n%s\nin another\n%s", format, a, b)
		}
		for _, step := range []string{"4", "6"} {
			load := tiny + someData + "--skip-train --ckpt-step " + step + " "
			one := must(t, dir, load+" --load DIR/run --ckpt-format native")
			two := must(t, dir, load+" --load DIR/apart --ckpt-format native")
			if a, b := finalLoss(one.out), finalLoss(two.out); a != b {
				t.Errorf("%s: iteration %s has validation loss %s, in another folder %s", format, step, a, b)
			}
		}
	}
}

// Claim: weights of another format start a run at iteration 0 with the loss that
// our own gives; the model's flags come from them with --use-checkpoint-args; another
// model's flags are refused.
func TestForeignWeights(t *testing.T) {
	dir := t.TempDir()
	must(t, dir, tiny+someData+"--save DIR/native --save-interval 6 --no-bias-gelu-fusion")
	src, err := all.Open(filepath.Join(dir, "native"), checkpoint.OpenOptions{Step: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	for _, f := range []checkpoint.Format{checkpoint.HF, checkpoint.NanoGPT, checkpoint.LLMC} {
		if _, err := all.Write(context.Background(), f, filepath.Join(dir, string(f)), checkpoint.WeightsOnly(src), checkpoint.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	theirs, err := all.Open(filepath.Join(dir, "hf"), checkpoint.OpenOptions{Step: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	if _, err := all.Write(context.Background(), checkpoint.Native, filepath.Join(dir, "converted"), theirs, checkpoint.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	training := someData + "--seq-length 16 --micro-batch-size 2 --global-batch-size 4 --lr 1e-2 --train-iters 6 --log-interval 1 --eval-interval 4 --eval-iters 2 --device ref --cpu-threads 1 "
	last := finalLoss(must(t, dir, training+"--finetune --skip-train --use-checkpoint-args --load DIR/native").out)
	for _, f := range []string{"hf", "nanogpt", "llmc", "converted"} {
		more := "--finetune "
		if f == "hf" {
			more = "" // it has no iteration to continue from
		}
		r := must(t, dir, training+more+"--skip-train --use-checkpoint-args --load DIR/"+f)
		if got := finalLoss(r.out); got != last {
			t.Errorf("%s: validation loss %s, our own format gives %s", f, got, last)
		}
	}
	r := call(t, dir, training+"--num-layers 2 --hidden-size 16 --num-attention-heads 4 --max-position-embeddings 16 --load DIR/hf")
	if r.code() != exitcode.IO || !strings.Contains(r.err.Error(), "--num-attention-heads 2 -> 4") {
		t.Errorf("other heads: %v", r.err)
	}
	r = call(t, dir, training+"--num-layers 2 --hidden-size 16 --num-attention-heads 2 --max-position-embeddings 16 --load DIR/nanogpt --no-bias-gelu-fusion")
	if r.code() != exitcode.IO || !strings.Contains(r.err.Error(), "--finetune") {
		t.Errorf("an iteration without optimizer: %v", r.err)
	}
}

// Claim: --use-checkpoint-args gives a run the model of a folder in all settings, also those for
// which Megatron-LM has no flag.
func TestFlagsOfFoldersSayTheModel(t *testing.T) {
	const llama = `"vocab_size":64,"hidden_size":32,"intermediate_size":64,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":4,"max_position_embeddings":64,"rms_norm_eps":1e-5`
	const latent = llama + `,"kv_lora_rank":8,"qk_nope_head_dim":8,"qk_rope_head_dim":4,"v_head_dim":8,"n_routed_experts":4,"num_experts_per_tok":2,"moe_intermediate_size":8,"n_group":1,"topk_group":1,"first_k_dense_replace":0`
	for _, text := range []string{
		`{"model_type":"llama",` + llama + `,"rope_scaling":{"rope_type":"llama3","factor":8,"low_freq_factor":1,"high_freq_factor":4,"original_max_position_embeddings":16}}`,
		`{"model_type":"llama",` + llama + `,"rope_scaling":{"rope_type":"llama3","factor":32,"low_freq_factor":1,"high_freq_factor":4,"original_max_position_embeddings":8192}}`,
		`{"model_type":"llama",` + llama + `,"rope_scaling":{"rope_type":"linear","factor":2.5},"attention_bias":true}`,
		`{"model_type":"deepseek_v3",` + latent + `}`,
		`{"model_type":"deepseek_v3",` + latent + `,"rope_scaling":{"rope_type":"yarn","factor":4,"original_max_position_embeddings":16,"beta_fast":24,"mscale":0.7,"mscale_all_dim":1.0}}`,
	} {
		c, err := hf.ParseConfig("config.json", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		c.Model.Context = c.MaxPositions // as a folder's
		line := []string{"--tokenizer-type", "NullTokenizer", "--vocab-size", "64", "--padded-vocab-size", "64"}
		for name, values := range training.ModelFlags(c.Model) {
			if line = append(line, "--"+name); !slices.Equal(values, []string{"true"}) {
				line = append(line, values...)
			}
		}
		run, _, err := arguments.ParseWith(arguments.Options{Partial: true, Experts: true}, line)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if list := c.Model.Reshaped(&run.Model); len(list) > 0 {
			t.Errorf("%s: flags lose %v", text, list)
		}
	}
}

// finalLoss is the validation loss on the complete validation set, as printed.
func finalLoss(out string) string {
	for line := range strings.Lines(out) {
		if strings.Contains(line, "on validation set") {
			_, rest, _ := strings.Cut(line, "lm loss value: ")
			loss, _, _ := strings.Cut(rest, " ")
			return loss
		}
	}
	return "none"
}

// Claim (docs/checkpoints.md): Megatron's formats hold as many rows of the
// vocabulary as Megatron makes for the same flags, or it cannot load them; a
// conversion keeps that, or takes another divisor.
func TestVocabularyIsPaddedAsAsked(t *testing.T) {
	dir := t.TempDir()
	rows := func(path string) int64 {
		t.Helper()
		src, err := all.Open(path, checkpoint.OpenOptions{Step: -1, KeepPadding: true})
		if err != nil {
			t.Fatal(err)
		}
		defer src.Close()
		for _, have := range src.Tensors() {
			if have.Name == checkpoint.Model+checkpoint.WordEmbeddings {
				return have.Shape[0]
			}
		}
		t.Fatalf("%s has no embedding", path)
		return 0
	}
	for i, c := range []struct {
		flags string
		want  int64 // of 50 ids
	}{
		{"--make-vocab-size-divisible-by 2", 50}, {"--make-vocab-size-divisible-by 7", 56}, {"--padded-vocab-size 60", 60},
		{"--world-size 2 --tensor-model-parallel-size 2 --make-vocab-size-divisible-by 7", 56}, {"--world-size 2 --tensor-model-parallel-size 2 --make-vocab-size-divisible-by 13", 52},
		{"--padded-vocab-in-softmax --make-vocab-size-divisible-by 7", 56},
	} {
		for _, format := range []string{"torch", "torch_dist"} {
			save := filepath.Join(dir, fmt.Sprint(format, i))
			must(t, dir, tiny+someData+c.flags+" --train-iters 1 --save-interval 1 --save "+save+" --ckpt-format "+format)
			if got := rows(save); got != c.want {
				t.Errorf("%s, %s: %d rows, want %d", c.flags, format, got, c.want)
			}
		}
	}
	for divisor, want := range map[int]int64{0: 56, 16: 64} { // from the run with 7
		src, err := all.Open(filepath.Join(dir, "torch1"), checkpoint.OpenOptions{Step: -1})
		if err != nil {
			t.Fatal(err)
		}
		defer src.Close()
		for _, f := range []checkpoint.Format{checkpoint.MegatronTorch, checkpoint.MegatronTorchDist} {
			to := filepath.Join(dir, fmt.Sprint("converted", f, divisor))
			if _, err := all.Write(context.Background(), f, to, src, checkpoint.WriteOptions{VocabDivisor: divisor}); err != nil {
				t.Fatal(err)
			}
			if got := rows(to); got != want {
				t.Errorf("divisor %d, %s: %d rows, want %d", divisor, f, got, want)
			}
		}
	}
}

// Claim: a run from a checkpoint of Megatron-LM with padding rows says that its losses are not Megatron-LM's, unless it
// includes these rows.
func TestPaddingOfMegatronIsNamed(t *testing.T) {
	load := "--load " + filepath.Join(golden.Dir(t, "checkpoint"), "gpt2-mcore-torch-tp1") +
		" --use-checkpoint-args --finetune --tokenizer-type NullTokenizer --vocab-size 131 --mock-data --seq-length 8 --micro-batch-size 1 --global-batch-size 1 --train-iters 1 --lr 1e-3 --eval-iters 0 "
	for flags, said := range map[string]bool{"": true, "--padded-vocab-in-softmax --make-vocab-size-divisible-by 8 ": false} {
		r := must(t, t.TempDir(), load+flags)
		if note := "rows that pad the vocabulary"; strings.Contains(r.notes, note) != said {
			t.Errorf("%s: notes\n%s", flags, r.notes)
		}
	}
}
