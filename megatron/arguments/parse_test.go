package arguments

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"monotron/internal/exitcode"
	"monotron/megatron/arguments/table"
	"monotron/megatron/config"
	"monotron/megatron/model"
	"monotron/megatron/spec"
)

// The command line that a one-rank run of Megatron's GPT example has.
const shows4 = `--tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 --num-layers 24 --hidden-size 1024
	--num-attention-heads 16 --seq-length 1024 --max-position-embeddings 1024 --micro-batch-size 1 --global-batch-size 2 --lr 0.00015
	--train-iters 3 --lr-decay-iters 320000 --lr-decay-style cosine --min-lr 1.0e-5 --weight-decay 1e-2 --lr-warmup-fraction .01
	--clip-grad 1.0 --fp16 --data-path my-gpt2_text_document --vocab-file vocab.json --merge-file merges.txt --split 949,50,1
	--log-interval 1 --save-interval 2 --eval-interval 100 --eval-iters 1 --distributed-backend nccl --save ckpt --load ckpt
	--attention-softmax-in-fp32 --sequence-parallel`

func TestOneRankCommandLine(t *testing.T) {
	c, report, err := Parse(shellWords(shows4))
	if err != nil {
		t.Fatal(err)
	}
	if c.Layout.SequenceParallel {
		t.Error("--sequence-parallel stays on with one tensor-parallel rank")
	}
	if c.Precision != config.FP16 || c.CheckForNaN {
		t.Errorf("precision %s, check for NaN %v", c.Precision, c.CheckForNaN)
	}
	if !c.Layout.NCCLRequested {
		t.Error("--distributed-backend nccl is not known to be requested")
	}
	if all := strings.Join(report.Notices, ""); len(report.Notices) != 2 || !strings.Contains(all, "--sequence-parallel has no effect") {
		t.Errorf("notices %q: want one each on --attention-softmax-in-fp32 and --sequence-parallel", report.Notices)
	}
	if err := c.SetVocab(50257); err != nil || c.Model.PaddedVocabSize != 50304 {
		t.Errorf("padded vocabulary %d, %v", c.Model.PaddedVocabSize, err)
	}
	if want := (spec.Model{NumLayers: 24, HiddenSize: 1024, FFNHiddenSize: 4096, NumAttentionHeads: 16, NumQueryGroups: 16, KVChannels: 64,
		VocabSize: 50257, PaddedVocabSize: 50304, MaxPositions: 1024, Context: 1024, Position: "learned_absolute", RotaryBase: 10000, RotaryPercent: 1,
		Normalization: "LayerNorm", NormEpsilon: 1e-5, Activation: spec.GeluTanh, LinearBias: true, QKVBias: true, Tied: true, WindowLeft: -1,
		HiddenDropout: 0.1, AttentionDropout: 0.1, InitStd: 0.02, EmbeddingInitStd: 0.02}); asJSON(c.Model) != asJSON(want) {
		t.Errorf("model\n%s\nwant\n%s", asJSON(c.Model), asJSON(want))
	}
}

// Command lines of Megatron-LM's README and examples, over time. Those for many
// ranks parse where layouts exist.
var readmeLines = []struct {
	name  string
	ranks int
	line  string
}{
	{"README 2021, one GPU", 1, `--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024 --max-position-embeddings 1024
		--micro-batch-size 4 --global-batch-size 8 --lr 0.00015 --train-iters 500000 --lr-decay-iters 320000 --lr-decay-style cosine
		--vocab-file gpt2-vocab.json --merge-file gpt2-merges.txt --lr-warmup-fraction .01 --fp16 --data-path my-gpt2_text_document
		--data-impl mmap --split 949,50,1 --distributed-backend nccl --log-interval 10 --save-interval 500 --eval-interval 100 --eval-iters 10
		--checkpoint-activations --save checkpoints/gpt2 --load checkpoints/gpt2`},
	{"README 2021, distributed", 8, `--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --DDP-impl torch --num-layers 24 --hidden-size 1024
		--num-attention-heads 16 --seq-length 1024 --max-position-embeddings 1024 --micro-batch-size 4 --global-batch-size 16 --lr 0.00015
		--train-iters 500000 --lr-decay-iters 320000 --lr-decay-style cosine --vocab-file v --merge-file m --lr-warmup-fraction .01 --fp16
		--data-path d --save c --load c --save-interval 500`},
	{"README, GPT-3 175B", 1024, `--tensor-model-parallel-size 8 --pipeline-model-parallel-size 16 --num-layers 96 --hidden-size 12288
		--num-attention-heads 96 --seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 1 --global-batch-size 1536
		--rampup-batch-size 16 16 5859375 --train-samples 146484375 --lr-decay-samples 126953125 --lr-warmup-samples 183105 --lr 6.0e-5
		--min-lr 6.0e-6 --lr-decay-style cosine --log-interval 10 --eval-iters 10 --eval-interval 1000 --data-path d --vocab-file v
		--merge-file m --save-interval 1000 --save s --load s --split 98,2,0 --clip-grad 1.0 --weight-decay 0.1 --adam-beta1 0.9
		--adam-beta2 0.95 --init-method-std 0.006 --tensorboard-dir t --fp16 --activations-checkpoint-method uniform
		--distribute-checkpointed-activations`},
	{"examples/gpt3 today", 128, `--num-layers 96 --hidden-size 12288 --num-attention-heads 96 --seq-length 2048 --max-position-embeddings 2048
		--attention-backend auto --micro-batch-size 1 --global-batch-size 1536
		--step-batch-size-schedule "0:16 2.4B:320 4.8B:624 7.2B:928 9.6B:1232 12B:1536" --train-iters 500000 --weight-decay 0.1
		--adam-beta1 0.9 --adam-beta2 0.95 --init-method-std 0.006 --clip-grad 1.0 --fp16 --lr 6.0e-5 --lr-decay-style cosine
		--min-lr 6.0e-6 --lr-warmup-fraction .001 --lr-decay-iters 430000 --tensor-model-parallel-size 8 --pipeline-model-parallel-size 16
		--data-path d --vocab-file v --merge-file m --split 949,50,1 --log-interval 100 --save-interval 10000 --eval-interval 1000
		--save c --load c --eval-iters 10 --tensorboard-dir t`},
	{"examples/llama", 8, `--fp8-format hybrid --fp8-amax-history-len 1024 --fp8-amax-compute-algo max --fp8-param-gather --use-mcore-models --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32
		--group-query-attention --num-query-groups 8 --kv-channels 128 --seq-length 8192 --max-position-embeddings 8192
		--position-embedding-type rope --rotary-base 1000000 --rotary-percent 1.0 --attention-dropout 0.0 --hidden-dropout 0.0 --swiglu
		--normalization RMSNorm --init-method-std 0.0134 --attention-backend fused --apply-layernorm-1p
		--untie-embeddings-and-output-weights --disable-bias-linear --micro-batch-size 1 --global-batch-size 128
		--train-samples 1953125000 --lr-decay-samples 1949218748 --lr-warmup-samples 3906252 --lr 0.00015 --min-lr 0.00001
		--decoupled-lr 5.0e-4 --decoupled-min-lr 4.5e-5 --lr-decay-style cosine --clip-grad 1.0 --weight-decay 0.1 --adam-beta1 0.9
		--adam-beta2 0.95 --bf16 --grad-reduce-in-bf16 --cross-entropy-loss-fusion --calculate-per-token-loss --manual-gc
		--empty-unused-memory-level 1 --exit-duration-in-mins 235 --tensor-model-parallel-size 1 --context-parallel-size 1
		--sequence-parallel --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather --mock-data
		--tokenizer-type NullTokenizer --vocab-size 128256 --data-cache-path cache --tiktoken-pattern v2 --split 99,1,0
		--no-create-attention-mask-in-dataloader --no-mmap-bin-files --num-workers 1 --log-interval 1 --eval-iters 32 --eval-interval 100
		--save-interval 1000 --log-throughput --profile --profile-step-start 4 --profile-step-end 6 --ckpt-format torch_dist
		--distributed-timeout-minutes 60 --save c --load c --tensorboard-dir t`},
	{"BLOOM", 384, `--pp-partition-method type:transformer|embedding --num-layers 70 --hidden-size 14336 --num-attention-heads 112 --seq-length 2048
		--max-position-embeddings 2048 --micro-batch-size 2 --global-batch-size 2048 --rampup-batch-size 192 16 9765625
		--train-samples 220000000 --init-method-std 0.0048 --embed-layernorm --fp16 --seed 42 --position-embedding-type alibi
		--checkpoint-activations --abort-on-unmet-fused-kernel-constraints --pad-vocab-size-to 250880 --optimizer adam --adam-beta1 0.9
		--adam-beta2 0.95 --adam-eps 1e-8 --lr 6e-5 --min-lr 6e-6 --lr-decay-style cosine --lr-decay-samples 200000000
		--lr-warmup-samples 183105 --clip-grad 1.0 --weight-decay 1e-1 --exit-duration-in-mins 5990 --log-interval 1 --save-interval 100
		--eval-interval 1000 --eval-iters 1 --tensorboard-dir t --tensorboard-queue-size 5 --log-timers-to-tensorboard
		--log-batch-size-to-tensorboard --log-validation-ppl-to-tensorboard --tensor-model-parallel-size 4 --pipeline-model-parallel-size 12
		--distributed-backend nccl --num-workers 2 --save c --load c --data-path d --tokenizer-type PretrainedFromHF
		--tokenizer-name-or-path bigscience/tokenizer --deepspeed --partition-activations`},
}

// Claim: these command lines parse unchanged.
func TestReadmeCommandLines(t *testing.T) {
	for _, r := range readmeLines {
		if _, _, err := ParseWith(Options{Layouts: true, Ranks: r.ranks}, shellWords(r.line)); err != nil {
			t.Errorf("%s: %v", r.name, err)
		}
	}
}

// Claim: what is missing here for the published lines of larger models is said in
// full, each reason once, and nothing else is complained about (examples of
// Megatron-LM: Mixtral; Megatron-MoE-ModelZoo: DeepSeek-V3).
func TestPublishedLinesAreAnsweredInFull(t *testing.T) {
	const common = `--disable-bias-linear --seq-length 4096 --max-position-embeddings 32768 --init-method-std 0.01 --attention-dropout 0 --hidden-dropout 0
		--normalization RMSNorm --position-embedding-type rope --swiglu --untie-embeddings-and-output-weights --tokenizer-type Llama2Tokenizer
		--tokenizer-model t --data-path d --micro-batch-size 1 --global-batch-size 256 --lr 1e-4 --train-iters 500_000 --bf16 --use-distributed-optimizer
		--sequence-parallel --world-size 64 --no-load-rng --manual-gc `
	for name, c := range map[string]struct {
		line string
		want []string
	}{
		"Mixtral 8x7B": {`--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention --num-query-groups 8
			--no-masked-softmax-fusion --no-position-embedding --rotary-base 1000000 --num-experts 8 --moe-router-topk 2 --moe-aux-loss-coeff 1e-2
			--moe-router-load-balancing-type aux_loss --moe-grouped-gemm --moe-token-dispatcher-type alltoall --pipeline-model-parallel-size 4
			--expert-model-parallel-size 8`,
			[]string{"--num-experts 8: ", "--expert-model-parallel-size 8 "}},
		"DeepSeek-V3": {`--num-layers 61 --hidden-size 7168 --ffn-hidden-size 18432 --num-attention-heads 128 --kv-channels 128 --multi-latent-attention
			--qk-layernorm --num-experts 256 --moe-layer-freq ([0]*3+[1]*58) --moe-ffn-hidden-size 2048 --moe-router-topk 8 --moe-router-num-groups 8
			--moe-router-group-topk 4 --moe-router-score-function sigmoid --moe-router-enable-expert-bias --moe-token-dispatcher-type flex --moe-enable-deepep
			--q-lora-rank 1536 --kv-lora-rank 512 --qk-head-dim 128 --qk-pos-emb-head-dim 64 --v-head-dim 128 --rotary-scaling-factor 40 --mscale 1.0
			--mtp-num-layers 1 --mtp-loss-scaling-factor 0.1 --recompute-granularity selective --recompute-modules mla_up_proj moe mlp layernorm`,
			[]string{"--num-experts 256: ", "--moe-token-dispatcher-type flex: ", "--moe-enable-deepep: ", "--recompute-modules mla_up_proj: "}},
	} {
		_, _, err := ParseWith(Options{Layouts: true}, strings.Fields(common+c.line))
		begins := fmt.Sprintf("%d problems:", len(c.want))
		if len(c.want) == 1 { // a single one has no list
			begins = c.want[0]
		}
		if err == nil || !strings.HasPrefix(err.Error(), begins) {
			t.Errorf("%s: want %d problems, found %v", name, len(c.want), err)
			continue
		}
		for _, want := range c.want {
			if len(c.want) > 1 && !strings.Contains(err.Error(), "  "+want) {
				t.Errorf("%s: %v lacks %q", name, err, want)
			}
		}
	}
}

// Claim: all problems of a line are in one error that exits 2.
func TestAllProblemsTogether(t *testing.T) {
	_, _, err := Parse(strings.Fields(`--num-layer 4 --hidden-size 65 --num-attention-heads 4 --seq-length 128 --max-position-embeddings 64
		--micro-batch-size x --optimizer soap --bf16 --fp16 --train-iters 10 --train-samples 10 --lr 1e-3 --min-lr 1e-2 stray`))
	if exitcode.CodeOf(err) != exitcode.Usage {
		t.Fatalf("code %d, %v", exitcode.CodeOf(err), err)
	}
	for _, want := range []string{"--num-layers?", "65 is not a multiple", "longer than --max-position-embeddings 64", "--micro-batch-size must be an integer from 1 to 2147483647, not x",
		"--optimizer soap", "--bf16 cannot be combined with --fp16", "--train-iters cannot be combined with --train-samples", "--data-path is missing"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the list lacks %q:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "--micro-batch-size is missing") {
		t.Errorf("a wrong value is also called missing:\n%v", err)
	}
}

// Claim: all problems of context parallelism are reported at once, each with the nearest values that fit.
func TestContextProblemsTogether(t *testing.T) {
	args := append(baseline(), strings.Fields(`--num-layers 4 --hidden-size 96 --num-attention-heads 6 --seq-length 62 --world-size 4 --context-parallel-size 4
		--cp-comm-type a2a a2a+p2p a2a --hierarchical-context-parallel-sizes 3 2 --cp-zigzag-per-document`)...)
	_, _, err := ParseWith(everything, args)
	if exitcode.CodeOf(err) != exitcode.Usage {
		t.Fatalf("code %d, %v", exitcode.CodeOf(err), err)
	}
	for _, want := range []string{"5 problems:", "use --seq-length 56 or 64", "one per layer (4), but has 3", "--cp-zigzag-per-document needs --reset-attention-mask",
		"use --hierarchical-context-parallel-sizes 2 2", "does not divide the 6 heads of each tensor-parallel rank (--num-attention-heads 6, tensor 1): use --cp-comm-type a2a+p2p with --hierarchical-context-parallel-sizes 2 2, or --cp-comm-type p2p or all_gather"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the list lacks %q:\n%v", want, err)
		}
	}
}

// Claim: one sentence per mistake, naming the flag (validate_args' rules).
func TestImpossibleCombinations(t *testing.T) {
	for _, c := range []struct{ add, want string }{
		{"--tensor-model-parallel-size 2", "is not supported by this build"},
		{"--world-size 2", "is not supported by this build"},
		{"--num-experts 4", "this build trains dense models"},
		{"--position-embedding-type yarn", "use --position-embedding-type rope with --rope-parameters"},
		{"--micro-batch-size 3", "not a positive multiple of --micro-batch-size 3"},
		{"--rampup-batch-size 3 2 100", "must be a multiple of the increment"},
		{"--rampup-batch-size 2 2", "accepts 3 values, but has 2"},
		{"--step-batch-size-schedule 1K:8", "the first threshold must be 0"},
		{"--step-batch-size-schedule 0:8,1X:16", `"1X:16" must have the form THRESHOLD:SIZE`},
		{"--lr-warmup-iters 100", "must be less than the decay length"},
		{"--lr-warmup-iters 5 --lr-warmup-fraction 0.1", "--lr-warmup-fraction cannot be combined with --lr-warmup-iters"},
		{"--lr-decay-samples 100", "--lr-decay-samples needs --train-samples; with --train-iters, use --lr-decay-iters"},
		{"--lr-decay-style WSD", "needs --lr-wsd-decay-iters"},
		{"--min-lr 1", "--min-lr must be from 0 to --lr 0.001, not 1"},
		{"--weight-decay-incr-style linear", "needs --start-weight-decay and --end-weight-decay"},
		{"--start-weight-decay 0.1", "need --weight-decay-incr-style"},
		{"--save x --save-interval 10 --save-retain-interval 15", "not a multiple of --save-interval 10"},
		{"--recompute-granularity full", "needs --recompute-method"},
		{"--swiglu --squared-relu", "--squared-relu and --swiglu cannot be combined; give one activation"},
		{"--mock-data", "--mock-data cannot be combined; give one"},
		{"--save gs://b/run", "--save gs://b/run: gs:// addresses are not supported; write s3://bucket/prefix"},
		{"--train-data-path b", "--data-path and --train-data-path (with --valid- and --test-data-path) cannot be combined; give one"},
		{"--group-query-attention --num-query-groups 3", "not a multiple of --num-query-groups 3"},
		{"--rampup-batch-size 2 1 100", "the global batch size 3 (during --rampup-batch-size) is not"},
		{"--sgd-momentum 2 --optimizer sgd", "--sgd-momentum must be at least 0 and below 1, not 2"},
		{"--optimizer muon --ckpt-format torch --save x", "--ckpt-format torch cannot be combined with --optimizer muon: the format stores AdamW's moments only; use --ckpt-format native"},
		{"--optimizer muon --offload-folder x", "--offload-folder cannot be combined with --optimizer muon: offload updates parts of the state one at a time, but this optimizer needs complete matrices at once"},
		{"--optimizer muon --optimizer-cpu-offload", "--optimizer-cpu-offload cannot be combined with --optimizer muon: offload updates parts of the state one at a time, but this optimizer needs complete matrices at once"},
		{"--optimizer dist_muon", "use muon with --use-distributed-optimizer"},
		{"--optimizer muon --muon-coefficient-type none", "polar_express"},
		{"--cpu-threads 100000", "--cpu-threads must be from 0 to 4096, not 100000"},
		{"--seed 4294967296", "--seed must be from 0 to 4294967295, not 4294967296"},
		{"--hidden-size 2000000000", "no machine can store that"},
		{"--seq-length 2000000000 --max-position-embeddings 2000000000 --micro-batch-size 2000000000 --global-batch-size 2000000000", "no machine can store that"},
		{"--seq-length 1", "--seq-length must be from 2 to 2147483647, not 1"},
		{"--world-size 0", "--world-size must be from 1 to 100000, not 0"},
		{"--split -1,50,51", "--split -1,50,51: write one to three numbers"},
		{"--step-batch-size-schedule 0:2,1K:3", "the global batch size 3 (from sample"},
		{"--rotary-percent 0.1 --position-embedding-type rope", "the number of rotated channels must be even"},
		{"--no-rope-freq 3", "does not divide --num-layers 4"},
		{"--window-size 4,1", "RIGHT must be 0"},
		{"--window-attn-skip-freq 2", "needs --window-size or --attention-chunk-size; give both"},
		{"--norm-after --norm-sandwich", "--norm-after, --norm-sandwich and --norm-behind-sum cannot be combined; give one"},
		{"--qk-layernorm-after-rope", "needs --qk-layernorm"},
		{"--parallel-one-norm", "needs --parallel-residual"},
		{"--glu-linear-offset 1", "need a gated MLP"},
		{"--position-embedding-type rope --rope-parameters {\"rope_type\":\"spiral\"}", "is not supported"},
		{"--position-embedding-type rope --rope-parameters {\"rope_type\":\"yarn\",\"factr\":2}", "unknown field"},
		{"--window-size 4,0 --window-attn-skip-freq [1,0]", "the list has 2 entries"},
		{"--window-size 4,0 --window-attn-skip-freq 0", "must be at least 1"},
		{"--qk-layernorm-whole", "give both"},
		{"--hidden-dropout 1.0", "--hidden-dropout must be at least 0 and below 1, not 1.0"},
		{"--keep-every 0", "--keep-every must be from 1 to 2147483647, not 0"},
		{"--log-interval 0", "--log-interval must be from 1 to 2147483647, not 0"},
		{"--lr nan", "--lr must be from 0 to 1e+30, not nan"},
		{"--seed -1", "--seed must be from 0 to 4294967295, not -1"},
		{"--batch-size 4", "use --micro-batch-size"},
		{"--curriculum-learning", "the sequence length must be constant"},
		{"--cross-entropy-fusion-impl te", "use native"},
		{"--log-memory-interval 30", "not a multiple of --log-interval"},
		{"--override-opt_param-scheduler --use-checkpoint-opt_param-scheduler", "--override-opt-param-scheduler cannot be combined with --use-checkpoint-opt-param-scheduler"},
		{"--use-checkpoint-args", "needs --load"},
		{"--num-layers 99999999", "--num-layers must be from 1 to 100000, not 99999999"},
		{"--micro-batch-size 4294967296", "--micro-batch-size must be from 1 to 2147483647, not 4294967296"},
		{"--train-iters 99999999999999999", "--train-iters must be from 0 to 2147483647, not 99999999999999999"},
		{"--padded-vocab-size 100", "smaller than the tokenizer's 250"},
	} {
		_, _, err := Parse(append(baseline(), strings.Fields(c.add)...))
		if err == nil || !strings.Contains(err.Error(), c.want) || exitcode.CodeOf(err) != exitcode.Usage {
			t.Errorf("%s: %v, want %q", c.add, err, c.want)
		}
	}
}

// Claim: with layouts, what cannot be placed is refused (docs/parallel.md).
func TestLayoutChecks(t *testing.T) {
	for _, c := range []struct{ add, want string }{
		{"--tensor-model-parallel-size 2", "--world-size 2 to run them in this process, or start processes with `monotron launch`"},
		{"--tensor-model-parallel-size 2 --world-size 3", "3 ranks do not divide"},
		{"--tensor-model-parallel-size 8 --world-size 8", "--tensor-model-parallel-size 8 must divide the 4 attention heads of the model; use --tensor-model-parallel-size 4"},
		{"--tensor-model-parallel-size 3 --world-size 3 --num-attention-heads 8 --group-query-attention --num-query-groups 2", "--tensor-model-parallel-size 3 must divide the 8 attention heads of the model; use --tensor-model-parallel-size 2 or 4"},
		{"--tensor-model-parallel-size 3 --world-size 3 --num-attention-heads 8", "--tensor-model-parallel-size 3 must divide the 8 attention heads of the model; use --tensor-model-parallel-size 2 or 4"},
		{"--num-distributed-optimizer-instances 4 --use-distributed-optimizer --world-size 6 --global-batch-size 24", "does not divide the 6 ranks that share gradients: use 3 or 6"},
		{"--context-parallel-size 4 --world-size 8 --tensor-model-parallel-size 2 --sequence-parallel --seq-length 60", "--seq-length 60 is not a multiple of 8 (twice --context-parallel-size): use --seq-length 56 or 64"},
		{"--context-parallel-size 8 --world-size 8 --cp-comm-type a2a", "8 ranks exchange heads, but 8 does not divide the 4 heads of each tensor-parallel rank (--num-attention-heads 4, tensor 1): use --cp-comm-type a2a+p2p with --hierarchical-context-parallel-sizes 2 4 or 4 2, or --cp-comm-type p2p or all_gather"},
		{"--context-parallel-size 4 --world-size 4 --cp-comm-type a2a --group-query-attention --num-query-groups 2", "4 does not divide the 2 query groups of each tensor-parallel rank (--num-query-groups 2, tensor 1): use --cp-comm-type a2a+p2p with --hierarchical-context-parallel-sizes 2 2, or --cp-comm-type p2p or all_gather"},
		{"--context-parallel-size 4 --world-size 4 --cp-comm-type a2a+p2p", "needs the sizes of a2a and of p2p: use --hierarchical-context-parallel-sizes 2 2"},
		{"--context-parallel-size 4 --world-size 4 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 4 2", "4 2 is 8, not --context-parallel-size 4: use --hierarchical-context-parallel-sizes 2 2"},
		{"--context-parallel-size 2 --world-size 2 --cp-comm-type a2a+p2p", "2 ranks are not a product of two sizes above 1"},
		{"--context-parallel-size 4 --world-size 4 --hierarchical-context-parallel-sizes 4", "needs two sizes, of a2a and of p2p, but has 1"},
		{"--context-parallel-size 2 --world-size 2 --cp-comm-type a2a p2p", "accepts one value, or one per layer (4), but has 2"},
		{"--context-parallel-size 2 --world-size 2 --cp-zigzag-per-document", "--cp-zigzag-per-document needs --reset-attention-mask or --dataloader-inter-document-masking"},
		{"--tensor-model-parallel-size 2 --sequence-parallel --world-size 2 --seq-length 63", "--seq-length 63 is not a multiple of 2 (--tensor-model-parallel-size x --context-parallel-size): use --seq-length 62 or 64"},
		{"--tensor-model-parallel-size 4 --sequence-parallel --context-parallel-size 3 --world-size 12 --seq-length 63", "--seq-length 63 is not a multiple of 12 (--tensor-model-parallel-size x --context-parallel-size): use --seq-length 60 or 72"},
		{"--context-parallel-size 3 --world-size 3", "--seq-length 64 is not a multiple of 6 (twice --context-parallel-size): use --seq-length 60 or 66"},
		{"--pipeline-model-parallel-size 3 --world-size 3", "cannot be divided evenly among 3 pipeline stages"},
		{"--num-layers-per-virtual-pipeline-stage 2 --num-virtual-stages-per-pipeline-rank 2", "cannot be combined; give one"},
		{"--num-virtual-stages-per-pipeline-rank 2", "needs --pipeline-model-parallel-size of at least 2"},
		{"--pipeline-model-parallel-size 2 --world-size 2 --pipeline-model-parallel-layout Et|tL", "has 2 layers, but --num-layers is 4"},
		{"--pipeline-model-parallel-layout (t", "a closing parenthesis is missing"},
		{"--overlap-param-gather", "needs --use-distributed-optimizer and --overlap-grad-reduce"},
		{"--expert-model-parallel-size 2 --world-size 2", "needs --num-experts"},
		{"--num-experts 3 --expert-model-parallel-size 2 --world-size 2", "not a multiple of --expert-model-parallel-size 2; use --expert-model-parallel-size 1 or 3"},
		{"--num-experts 6 --expert-model-parallel-size 4 --world-size 4 --disable-bias-linear", "not a multiple of --expert-model-parallel-size 4; use --expert-model-parallel-size 3 or 6"},
		{"--num-experts 4 --expert-model-parallel-size 4 --world-size 6 --global-batch-size 24", "6 ranks do not divide evenly into copies of the experts with 4 ranks each (expert tensor 1 x expert 4 x pipeline 1); use --expert-model-parallel-size 2"},
		{"--num-experts 4 --expert-tensor-parallel-size 3 --moe-ffn-hidden-size 36 --disable-bias-linear", "(expert tensor 3 x expert 1 x pipeline 1); use --expert-tensor-parallel-size 1"},
		{"--num-experts 6 --expert-tensor-parallel-size 3 --expert-model-parallel-size 3 --moe-ffn-hidden-size 36 --disable-bias-linear --world-size 4", "use --expert-tensor-parallel-size 2 or 4 with --expert-model-parallel-size 1"},
		{"--num-experts 4 --disable-bias-linear --use-tp-pp-dp-mapping --context-parallel-size 2 --pipeline-model-parallel-size 2 --world-size 4", "(expert tensor 1 x expert 1) must equal the number that share a sample (tensor 1 x context 2)"},
		{"--num-experts 4 --disable-bias-linear --moe-ffn-hidden-size 33 --tensor-model-parallel-size 2 --sequence-parallel --world-size 2", "--moe-ffn-hidden-size 33 is not a multiple of --expert-tensor-parallel-size 2; use --expert-tensor-parallel-size 1 or 3"},
		{"--num-experts 4 --disable-bias-linear --moe-ffn-hidden-size 2147483647 --tensor-model-parallel-size 2 --sequence-parallel --world-size 2",
			"--moe-ffn-hidden-size 2147483647 is not a multiple of --expert-tensor-parallel-size 2; use --expert-tensor-parallel-size 1"},
		{"--num-experts 100000 --moe-ffn-hidden-size 2147483647", "the experts would have about"},
		{"--num-experts 4 --disable-bias-linear --moe-shared-expert-intermediate-size 2147483647 --num-layers 100000", "--moe-shared-expert-intermediate-size 2147483647"},
		{"--num-experts 4 --moe-router-topk 5", "--moe-router-topk must be from 1 to --num-experts 4, not 5"},
		{"--num-experts 6 --moe-router-num-groups 4 --moe-router-group-topk 2", "the number of groups must divide the number of experts (possible: 3 or 6)"},
		{"--num-experts 4 --moe-router-num-groups 4 --moe-router-group-topk 1", "--moe-router-topk 2 with --moe-router-group-topk 1 needs 2 experts from each group, but with --moe-router-num-groups 4 a group has only 1"},
		{"--num-experts 4 --moe-router-num-groups 2 --moe-router-group-topk 3", "must divide the number of experts (possible: 2), and the groups per token must divide the experts per token (possible: 2)"},
		{"--num-experts 4 --moe-router-load-balancing-type aux_loss none aux_loss --moe-aux-loss-coeff 1e-2 0 1e-2", "has aux_loss twice"},
		{"--num-experts 4 --moe-layer-freq ([0]*1+[2]*3)", "the list has the entry 2; entries must be 0 or 1"},
		{"--num-experts 4 --moe-layer-freq [0]*4", "gives experts to none of the 4 layers"},
		{"--num-experts 4 --moe-shared-expert-intermediate-size 32", "needs --disable-bias-linear"},
		{"--num-experts 4 --moe-latent-size 32", "--moe-latent-size needs --disable-bias-linear"},
		{"--num-experts 4 --disable-bias-linear --moe-latent-size 8 --ckpt-format torch", "--ckpt-format torch cannot store projections around experts"},
		{"--num-experts 4 --disable-bias-linear --moe-latent-size 2147483647 --hidden-size 1048576 --num-layers 100000", "--moe-latent-size 2147483647"},
		{"--num-experts 4 --moe-global-aux-exact", "--moe-global-aux-exact needs --moe-router-load-balancing-type global_aux_loss; give both"},
		{"--num-experts 4 --moe-router-load-balancing-type quantile_balancing --moe-aux-loss-coeff 0.1", "--moe-aux-loss-coeff above 0, --moe-router-enable-expert-bias or --moe-router-num-groups"},
		{"--num-experts 4 --moe-router-load-balancing-type quantile_balancing --moe-router-topk 4", "--moe-router-topk of at most 3"},
		{"--num-experts 1 --moe-router-topk 1 --moe-router-pre-softmax --moe-router-load-balancing-type quantile_balancing", "needs --num-experts 2 or more, not 1"},
		{"--num-experts 4 --disable-bias-linear --moe-shared-expert-intermediate-size 7 --tensor-model-parallel-size 2 --sequence-parallel --world-size 2", "use --moe-shared-expert-intermediate-size 6 or 8"},
		{"--num-experts 4 --expert-model-parallel-size 2", "1 rank does not divide evenly into copies of the experts with 2 ranks each"},
		{"--num-experts 4 --moe-router-load-balancing-type sinkhorn --moe-expert-capacity-factor 1", "cannot be combined with --moe-router-load-balancing-type sinkhorn; use aux_loss, seq_aux_loss, global_aux_loss or none"},
		{"--num-experts 4 --moe-router-load-balancing-type sinkhorn --moe-aux-loss-coeff 0.1", "cannot be combined with another type or with --moe-aux-loss-coeff above 0"},
		{"--num-experts 4 --moe-pad-expert-input-to-capacity", "needs --moe-expert-capacity-factor"},
		{"--num-experts 4 --moe-apply-probs-on-input", "needs --moe-router-topk 1"},
		{"--num-experts 4 --disable-bias-linear --moe-shared-expert-intermediate-size 32 --moe-shared-expert-overlap", "needs --moe-token-dispatcher-type alltoall, not allgather"},
		{"--num-experts 4 --disable-bias-linear --moe-shared-expert-intermediate-size 32 --moe-shared-expert-overlap --moe-token-dispatcher-type alltoall --recompute-granularity selective --recompute-modules shared_experts", "--moe-shared-expert-overlap cannot be combined with --recompute-modules shared_experts; leave one out"},
		{"--num-experts 4 --moe-aux-loss-coeff 0.1 0.2", "accepts one number, or one per"},
		{"--num-experts 4 --tensor-model-parallel-size 2 --sequence-parallel --world-size 2", "--expert-tensor-parallel-size above 1 needs --disable-bias-linear"},
		{"--num-experts 4 --moe-router-topk 1", "needs --moe-router-pre-softmax"},
		{"--num-experts 4 --moe-router-enable-expert-bias", "sigmoid or sqrtsoftplus"},
		{"--num-experts 4 --moe-layer-freq [1,0]", "the list has 2 entries"},
		{"--num-experts 4 --moe-layer-freq [1,0]*9999999", "expected a number of at most 100000"},
		{"--num-experts 4 --disable-bias-linear --tensor-model-parallel-size 2 --world-size 2", "--num-experts with --tensor-model-parallel-size 2 needs --sequence-parallel"},
	} {
		_, _, err := ParseWith(everything, append(baseline(), strings.Fields(c.add)...))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.add, err, c.want)
		}
	}
	c, _, err := ParseWith(everything, append(baseline(), strings.Fields("--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --world-size 8 --pipeline-model-parallel-layout (Ett|)(tt|)*1L --sequence-parallel")...))
	if err == nil || !strings.Contains(err.Error(), "stages") {
		t.Errorf("a layout with 3 stages on 2 ranks: %v", err)
	}
	c, _, err = ParseWith(everything, append(baseline(), strings.Fields("--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --world-size 8 --pipeline-model-parallel-layout Et|(t|)*2tL")...))
	if err != nil || c.Layout.VP != 2 || c.Layout.DP != 2 {
		t.Errorf("VP %d, DP %d, %v", c.Layout.VP, c.Layout.DP, err)
	}
}

// Claim: command line > file > checkpoint > default, and --print-config says
// which it was.
func TestPrecedence(t *testing.T) {
	file := filepath.Join(t.TempDir(), "run.yaml")
	text := "num_layers: 6\nlr: 2e-3\nswiglu: true\ndata-path: [0.3, a, 0.7, b]\nhidden-dropout: 0\nprint-config: true\n"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	// Of the iteration that is loaded; while --load holds nothing, of
	// --pretrained-checkpoint.
	o := Options{CheckpointValues: func(folder string, step int64) (map[string][]string, error) {
		if folder == "new" {
			return nil, nil
		}
		if folder != "pre" && step != 7 {
			return nil, fmt.Errorf("step %d", step)
		}
		if folder == "pre" {
			folder = "ckpt"
		}
		if folder != "ckpt" {
			return nil, fmt.Errorf("folder %q", folder)
		}
		return map[string][]string{"num_layers": {"9"}, "hidden-size": {"96"}, "num-attention-heads": {"6"}, "qk-layernorm": {"true"},
			"add-qkv-bias": {"false"}, "batch-size": {"3"}, "no-such-thing": {"1"}}, nil
	}}
	c, report, err := ParseWith(o, strings.Fields("--config "+file+" --lr 5e-3 --load ckpt --ckpt-step 7 --use-checkpoint-args --seq-length 32 --max-position-embeddings 64 --micro-batch-size 2 --train-iters 10"))
	if err != nil {
		t.Fatal(err)
	}
	if c.Optimizer.LR != 5e-3 || c.Model.NumLayers != 6 || c.Model.HiddenSize != 96 || c.Model.AttentionDropout != 0.1 || !c.Model.QKNorm {
		t.Errorf("lr %g, layers %d, hidden %d, dropout %g", c.Optimizer.LR, c.Model.NumLayers, c.Model.HiddenSize, c.Model.AttentionDropout)
	}
	if c.Model.Activation != spec.Swiglu || len(c.Data.DataPath) != 4 || c.Model.HiddenDropout != 0 {
		t.Errorf("activation %s, data %q", c.Model.Activation, c.Data.DataPath)
	}
	if !report.PrintConfig {
		t.Error("print-config of the file is not seen")
	}
	for _, from := range []string{"--pretrained-checkpoint pre", "--load new --pretrained-checkpoint pre"} {
		c, _, err := ParseWith(o, strings.Fields(from+" --num-layers 2 --lr 1 --use-checkpoint-args --seq-length 32 --max-position-embeddings 64 --micro-batch-size 2 --train-iters 10 --mock-data"))
		if err != nil || c.Model.HiddenSize != 96 {
			t.Errorf("%s: hidden %d, %v", from, c.Model.HiddenSize, err)
		}
	}
	var printed bytes.Buffer
	if err := report.WriteConfig(&printed); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][2]string{"lr": {"0.005", "command line"}, "num-layers": {"6", file + ":1"}, "hidden-size": {"96", "checkpoint"},
		"attention-dropout": {"0.1", "default"}, "kv-channels": {"16", "derived"}, "swiglu": {"true", file + ":3"}, "data-path": {"[0.3, a, 0.7, b]", file + ":4"}} {
		line := lineOf(printed.String(), name+":")
		if !strings.Contains(line, want[0]) || !strings.HasSuffix(line, "# "+want[1]) {
			t.Errorf("%s: %q, want %s from %s", name, line, want[0], want[1])
		}
	}
}

func lineOf(text, start string) string {
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(strings.TrimPrefix(line, "# "), start) {
			return line
		}
	}
	return ""
}

// Claim: what --print-config writes is a --config file for the same run.
func TestPrintedConfigIsAConfigFile(t *testing.T) {
	args := append(baseline(), strings.Fields("--swiglu --no-bias-gelu-fusion --rampup-batch-size 4 2 100 --sample-prompt x --bf16 --data-path a b --sample-prompt")...)
	args = append(args, `func main() { // "quoted": #1`)
	want, report, err := Parse(args)
	if err != nil {
		t.Fatal(err)
	}
	var printed bytes.Buffer
	if err := report.WriteConfig(&printed); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "again.yaml")
	if err := os.WriteFile(file, printed.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	got, _, err := Parse([]string{"--config", file})
	if err != nil {
		t.Fatalf("%v\n%s", err, printed.String())
	}
	got.Flags, want.Flags = nil, nil // as typed: 1e-3 there, 0.001 here
	if asJSON(got) != asJSON(want) {
		t.Errorf("got\n%s\nwant\n%s", asJSON(got), asJSON(want))
	}
}

func TestBadConfigFiles(t *testing.T) {
	for text, want := range map[string]string{
		"num-layer: 3":          ":1: unknown name \"num-layer\"; did you mean num-layers",
		"a:\n - b":              "unknown name",
		"- x":                   "must consist of `name: value` lines",
		"swiglu: 3":             "true or false",
		"min-lr: {a: 1}":        "must have a value or a list",
		"min-lr: [1, 2]":        "accepts one value, but has 2",
		"min-lr: \"\x00":        "--config",
		"batch-size: 3":         "use --micro-batch-size",
		"data-path: [[a], [b]]": "must have a value or a list",
		"config: other.yaml":    ":1: a file of flags cannot include another",
	} {
		file := filepath.Join(t.TempDir(), "bad.yaml")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		_, _, err := Parse(append(baseline(), "--config", file))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, _, err := Parse(append(baseline(), "--config", "/no/such/file")); err == nil {
		t.Error("a missing file is no error")
	}
}

// Claim: notices come once, and only for what the user gave.
func TestNotices(t *testing.T) {
	if _, report, err := Parse(baseline()); err != nil || len(report.Notices) != 0 {
		t.Errorf("%q, %v", report.Notices, err)
	}
	_, report, err := Parse(append(baseline(), "--manual-gc", "--manual-gc", "--num-query-groups", "2"))
	if err != nil || len(report.Notices) != 2 {
		t.Errorf("%q, %v", report.Notices, err)
	}
}

func TestHelpNamesEveryFlag(t *testing.T) {
	if _, report, err := Parse([]string{"--help", "--nonsense"}); !report.Help || err != nil {
		t.Errorf("help %v, %v", report.Help, err)
	}
	var help bytes.Buffer
	if err := WriteAllHelp(&help); err != nil {
		t.Fatal(err)
	}
	for _, f := range table.All() {
		if !strings.Contains(help.String(), " --"+f.Name) {
			t.Errorf("--help-all lacks --%s", f.Name)
		}
	}
}

// Claim (README.md): --help fits on a few screens of 100 columns, begins with the flags that a run
// needs, all of which a bare command line misses, and lists only flags that work.
func TestHelpIsShort(t *testing.T) {
	for line, all := range map[string]bool{"--help": false, "-h": false, "--help-all": true} {
		if _, report, err := Parse([]string{line}); err != nil || !report.Help || report.HelpAll != all {
			t.Errorf("%s: %+v, %v", line, report, err)
		}
	}
	var help bytes.Buffer
	if err := WriteHelp(&help); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(help.String(), "\n")
	if len(lines) > 130 {
		t.Errorf("--help has %d lines", len(lines))
	}
	for _, line := range lines {
		if utf8.RuneCountInString(line) > 100 {
			t.Errorf("too wide: %s", line)
		}
	}
	_, _, err := Parse(nil)
	for _, name := range often[0].flags {
		if err == nil || !strings.Contains(err.Error(), "--"+name+" is missing") {
			t.Errorf("--%s is not needed: %v", name, err)
		}
	}
	for _, group := range often {
		for _, name := range group.flags {
			if f := table.Find(name); f == nil || f.Name != name || f.Class != table.Works || f.NotYet {
				t.Errorf("--%s of %s is no flag that works", name, group.subject)
			}
		}
	}
}

// Claim: the old ramp-up rule counts iterations of --train-samples exactly.
func TestIterationsOfSamples(t *testing.T) {
	c, _, err := Parse(append(baseline(), strings.Fields("--rampup-batch-size 4 2 100")...))
	if err != nil {
		t.Fatal(err)
	}
	b, err := config.NewBatchSizes(&c, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, samples := range []int{0, 3, 4, 99, 100, 101, 107, 108, 1000} {
		want, consumed := 0, 0
		for {
			now, err := b.At(consumed)
			if err != nil {
				t.Fatal(err)
			}
			ramping := consumed <= 100
			if consumed >= samples || !ramping && consumed+now.Running > samples {
				break
			}
			consumed += now.Running
			want++
		}
		got, err := b.Iterations(samples)
		if err != nil || got != want {
			t.Errorf("%d samples: %d iterations, want %d (%v)", samples, got, want, err)
		}
		if back, err := b.Consumed(got); err != nil || back != consumed {
			t.Errorf("%d iterations consume %d, want %d (%v)", got, back, consumed, err)
		}
	}
}

func TestMixtureLayers(t *testing.T) {
	for text, want := range map[string]string{"1": "1111", "2": "1010", "[0,1,1,1]": "0111", "[0]*1+[1]*3": "0111", "([0]+[1])*2": "0101"} {
		layers, err := mixtureLayers(text, 4)
		got := ""
		for _, on := range layers {
			got += map[bool]string{true: "1", false: "0"}[on]
		}
		if err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", text, got, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(shows4)
	f.Add("--moe-layer-freq ([0]*1+[1]*3)*2 --pipeline-model-parallel-layout Et*3|(t|)*2L --window-size 4,0")
	f.Fuzz(func(t *testing.T, line string) {
		if strings.Contains(line, "config") {
			return // no files from outside
		}
		if _, _, err := ParseWith(everything, shellWords(line)); err != nil && exitcode.CodeOf(err) != exitcode.Usage {
			t.Errorf("code %d: %v", exitcode.CodeOf(err), err)
		}
	})
}

// TestIdleFlagsAreNamed: what has no effect because another flag is missing is
// said, once for all flags that lack the same one; what has an effect is not.
func TestIdleFlagsAreNamed(t *testing.T) {
	for _, c := range []struct {
		add, want string // "": no notice
	}{
		{"--moe-router-topk 4 --moe-z-loss-coeff 1e-3", "--moe-router-topk, --moe-z-loss-coeff: the flags have no effect without --num-experts"},
		{"--rotary-percent 0.5", "--rotary-percent: the flag has no effect without --position-embedding-type rope"},
		{"--rotary-percent 0.5 --use-rotary-position-embeddings", ""},
		{"--save-interval 5", "--save-interval: the flag has no effect without --save"},
		{"--save x --save-interval 5", ""},
		{"--finetune --pretrained-checkpoint x", ""},
		{"--finetune", "--finetune: the flag has no effect without --load or --pretrained-checkpoint"},
		{"--profile-step-end 5", "--profile-step-end: the flag has no effect without --profile"},
		{"--profile --profile-step-end 5", ""},
		{"--sequence-parallel", "--sequence-parallel has no effect with --tensor-model-parallel-size 1"},
		{"--moe-token-drop-policy position", "--moe-token-drop-policy: the flag has no effect without --num-experts"},
		{"--expert-tensor-parallel-size 2", "--expert-tensor-parallel-size: the flag has no effect without --num-experts"},
		{"--lr-decay-power 2", "--lr-decay-power: the flag has no effect without --lr-decay-style polynomial"},
		{"--lr-decay-style polynomial --lr-decay-power 2", ""},
		{"--lr-decay-style cosine --lr-decay-cycles 2 --lr-wsd-decay-style cosine", "--lr-decay-cycles: the flag has no effect without --lr-decay-style cosine-restarts; --lr-wsd-decay-style: the flag has no effect without --lr-decay-style WSD"},
		{"--lr-decay-style constant --min-lr 1e-6", "--min-lr: the flag has no effect with --lr-decay-style constant"},
		{"--lr-decay-style WSD --lr-wsd-decay-iters 1", ""},
		{"--lr-decay-style WSD --lr-wsd-decay-iters 2000 --train-iters 100 --lr-warmup-iters 10", "--lr-wsd-decay-iters 2000 is longer than the 90 steps after the warm-up, so the decay begins during the warm-up; when the warm-up ends, the learning rate drops to the value that the decay has reached by then"},
		{"--lora-rank 4", "--lora-rank or --adapter is given without --load: the adapter is trained on frozen random weights"},
		{"--lora-rank 4 --load x", ""},
		{"--lr-warmup-init 1e-6", "--lr-warmup-init: the flag has no effect without --lr-warmup-iters or --lr-warmup-samples or --lr-warmup-fraction"},
		{"--optimizer sgd --adam-beta1 0.8", "--adam-beta1: the flag has no effect without --optimizer adam, adamw_8bit, schedule_free_adamw, muon or adaptive_muon"},
		{"--sgd-momentum 0.8 --muon-momentum 0.8", "--sgd-momentum: the flag has no effect without --optimizer sgd; --muon-momentum: the flag has no effect without --optimizer muon or adaptive_muon"},
		{"--recompute-granularity selective --recompute-modules moe_act", "--recompute-modules moe_act: modules of experts have no effect without --num-experts"},
	} {
		_, report, err := Parse(append(baseline(), strings.Fields(c.add)...))
		if err != nil {
			t.Errorf("%s: %v", c.add, err)
			continue
		}
		if got := strings.Join(report.Notices, "; "); got != c.want {
			t.Errorf("%s: notices %q, want %q", c.add, got, c.want)
		}
	}
	const random = "--moe-router-force-load-balancing replaces the router's logits by random numbers, so this flag also affects "
	for _, c := range []struct{ add, want string }{
		{"--moe-shared-expert-overlap", "--moe-shared-expert-overlap: the flag has no effect without --moe-shared-expert-intermediate-size"},
		{"--moe-router-bias-update-rate 0.1", "--moe-router-bias-update-rate: the flag has no effect without --moe-router-enable-expert-bias"},
		{"--moe-token-drop-policy position", "--moe-token-drop-policy: the flag has no effect without --moe-expert-capacity-factor"},
		{"--moe-router-quantile-balancing-ema 0.5", "--moe-router-quantile-balancing-ema: the flag has no effect without --moe-router-load-balancing-type quantile_balancing"},
		{"--moe-router-load-balancing-type none --moe-aux-loss-coeff 0.1", "--moe-aux-loss-coeff: the flag has no effect with --moe-router-load-balancing-type none"},
		{"--moe-router-load-balancing-type aux_loss none --moe-aux-loss-coeff 0.1", "--moe-router-load-balancing-type aux_loss none: the type none and its --moe-aux-loss-coeff have no effect if another type is given"},
		{"--moe-router-force-load-balancing --moe-router-load-balancing-type sinkhorn", random + "--moe-router-load-balancing-type sinkhorn"},
		{"--moe-router-force-load-balancing --moe-router-load-balancing-type quantile_balancing", random + "--moe-router-load-balancing-type quantile_balancing"},
		{"--moe-router-force-load-balancing --moe-router-num-groups 2 --moe-router-group-topk 1 --moe-router-score-function sigmoid --moe-router-enable-expert-bias",
			random + "--moe-router-num-groups, --moe-router-enable-expert-bias"},
	} {
		_, report, err := ParseWith(everything, append(baseline(), strings.Fields("--num-experts 4 "+c.add)...))
		if err != nil || !slices.Contains(report.Notices, c.want) {
			t.Errorf("%s: %v, notices %q, want %q", c.add, err, report.Notices, c.want)
		}
	}
}

// Claim: a size of expert tensor parallelism without experts cuts nothing, whatever the ranks.
func TestExpertTensorSizeWithoutExperts(t *testing.T) {
	for _, ranks := range []string{"1", "4"} {
		c, _, err := ParseWith(everything, append(baseline(), strings.Fields("--expert-tensor-parallel-size 3 --world-size "+ranks)...))
		if err != nil || c.Layout.ETP != 1 {
			t.Errorf("%s ranks: expert tensor size %d, %v", ranks, c.Layout.ETP, err)
		}
	}
}

// Claim: --window-attn-skip-freq means the layers that Megatron's does
// (is_layer_window_attention: layer numbers from 1).
func TestWindowsByLayer(t *testing.T) {
	for text, want := range map[string]string{"": "[]", "2": "[true false true false]", "4": "[true true true false]", "1": "[false false false false]", "[0,1]*2": "[false true false true]"} {
		line := append(baseline(), "--window-size", "7,0")
		if text != "" {
			line = append(line, "--window-attn-skip-freq", text)
		}
		c, _, err := ParseWith(everything, line)
		if got := fmt.Sprint(c.Model.Windowed); err != nil || got != want {
			t.Errorf("%q: %s, %v; want %s", text, got, err, want)
		}
	}
}

// Claim: what upcycling and --use-checkpoint-args both lack is reported once.
func TestLackOfLoadIsReportedOnce(t *testing.T) {
	_, _, err := ParseWith(everything, append(baseline(), strings.Fields("--num-experts 4 --moe-use-upcycling --use-checkpoint-args")...))
	if err == nil || err.Error() != "--use-checkpoint-args needs --load or --pretrained-checkpoint" {
		t.Errorf("%v", err)
	}
}

// Claim: the table of flags and the model know the same parts that can be made again.
func TestModulesOfTheTable(t *testing.T) {
	every, mixtures := model.Modules()
	want, got := append(every, mixtures...), slices.Clone(table.Find("recompute-modules").Choices)
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the table has %v, the model %v", got, want)
	}
}

// Claim (docs/tutorials.md): a flag of another program is answered with the one that does the same here; similar names are those of flags
// that work, if there are any.
func TestUnknownFlagsAreUnderstood(t *testing.T) {
	for name, list := range synonyms {
		if f := table.Find(name); f != nil {
			t.Errorf("--%s is a flag", name)
		}
		for _, other := range list {
			if f := table.Find(other); f == nil || f.Class != table.Works {
				t.Errorf("--%s, for --%s, is no flag that works", other, name)
			}
		}
	}
	for line, want := range map[string]string{
		"--learning_rate 1": "unknown flag --learning-rate; did you mean --lr?",
		"--dropout 0":       "unknown flag --dropout; did you mean --hidden-dropout or --attention-dropout?",
		"--num-layer 1":     "unknown flag --num-layer; did you mean --num-layers?",
		"--batch-scheduler": "unknown flag --batch-scheduler; --help-all lists all flags",
	} {
		if _, _, err := Parse(append(baseline(), strings.Fields(line)...)); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
	}
}

// Claim (docs/report.md): the trace of a --profile without a file is in the folder of the log, where the run's page finds it.
func TestTraceIsWhereThePageFindsIt(t *testing.T) {
	for line, want := range map[string]string{
		"":                                       "",
		"--profile":                              "trace.json",
		"--profile --log-jsonl run/steps.jsonl":  "run/trace.json",
		"--profile trace.json --log-jsonl run/x": "trace.json",
		"--log-jsonl x --profile":                "trace.json",
	} {
		if c, _, err := Parse(append(baseline(), strings.Fields(line)...)); err != nil || c.Log.Profile != want {
			t.Errorf("%q: %q, %v; want %q", line, c.Log.Profile, err, want)
		}
	}
}
