package arguments

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"monotron/megatron/arguments/table"
)

// megatronNames is every flag of Megatron-LM that a training command of it takes
// (megatron/training/arguments.py).
const megatronNames = `
num-layers hidden-size num-attention-heads max-position-embeddings ffn-hidden-size kv-channels group-query-attention
num-query-groups position-embedding-type use-rotary-position-embeddings rotary-base rotary-percent rotary-interleaved
rotary-seq-len-interpolation-factor use-rope-scaling no-rope-freq normalization norm-epsilon apply-layernorm-1p
disable-bias-linear add-qkv-bias qk-layernorm qk-l2-norm swiglu squared-relu quick-geglu untie-embeddings-and-output-weights
hidden-dropout attention-dropout window-size window-attn-skip-freq softmax-type attention-output-gate init-method-std
embedding-init-method-std use-mup multi-latent-attention mtp-num-layers make-vocab-size-divisible-by vocab-size
padded-vocab-size transformer-impl attention-backend spec
no-masked-softmax-fusion no-bias-gelu-fusion no-bias-swiglu-fusion no-bias-dropout-fusion no-rope-fusion
no-gradient-accumulation-fusion no-persist-layer-norm cross-entropy-loss-fusion cross-entropy-fusion-impl tp-comm-overlap
tensor-model-parallel-size pipeline-model-parallel-size context-parallel-size expert-model-parallel-size
expert-tensor-parallel-size sequence-parallel cp-comm-type hierarchical-context-parallel-sizes use-tp-pp-dp-mapping
num-layers-per-virtual-pipeline-stage num-virtual-stages-per-pipeline-rank pipeline-model-parallel-layout
decoder-first-pipeline-num-layers decoder-last-pipeline-num-layers account-for-embedding-in-pipeline-split
account-for-loss-in-pipeline-split microbatch-group-size-per-virtual-pipeline-stage no-overlap-p2p-communication
tensor-parallel-num-weight-shards
micro-batch-size global-batch-size train-iters train-samples step-batch-size-schedule decrease-batch-size-if-needed seq-length
seed data-parallel-random-init calculate-per-token-loss deterministic-mode exit-interval exit-duration-in-mins
exit-signal-handler manual-gc iterations-to-skip no-check-for-nan-in-loss-and-grad rerun-mode eval-iters eval-interval
eval-global-batch-size eval-micro-batch-size skip-train full-validation
lr min-lr lr-decay-style lr-decay-iters lr-decay-samples lr-warmup-iters lr-warmup-samples lr-warmup-fraction lr-warmup-init
lr-wsd-decay-style lr-wsd-decay-iters lr-wsd-decay-samples decoupled-lr decoupled-min-lr override-opt-param-scheduler
override-opt_param-scheduler use-checkpoint-opt-param-scheduler use-checkpoint-opt_param-scheduler optimizer adam-beta1
adam-beta2 adam-eps sgd-momentum weight-decay start-weight-decay end-weight-decay weight-decay-incr-style
apply-wd-to-qk-layernorm clip-grad use-precision-aware-optimizer main-grads-dtype main-params-dtype exp-avg-dtype
exp-avg-sq-dtype optimizer-cpu-offload optimizer-offload-fraction
bf16 fp16 loss-scale initial-loss-scale min-loss-scale loss-scale-window hysteresis accumulate-allreduce-grads-in-fp32
grad-reduce-in-bf16 attention-softmax-in-fp32 apply-query-key-layer-scaling fp32-residual-connection fp8-format fp8-recipe
distributed-backend distributed-timeout-minutes use-distributed-optimizer num-distributed-optimizer-instances
overlap-grad-reduce overlap-param-gather ddp-bucket-size ddp-num-buckets ddp-average-in-collective
ddp-pad-buckets-for-high-nccl-busbw use-megatron-fsdp data-parallel-sharding-strategy use-torch-fsdp2 use-cpu-initialization
disable-gloo-process-groups
recompute-activations recompute-granularity recompute-method recompute-num-layers recompute-modules
distribute-saved-activations
save load save-interval save-retain-interval ckpt-format ckpt-step no-save-optim no-save-rng no-load-optim no-load-rng
finetune pretrained-checkpoint use-checkpoint-args exit-on-missing-checkpoint auto-detect-ckpt-format async-save
no-ckpt-fully-parallel-save dist-ckpt-strictness
data-path train-data-path valid-data-path test-data-path data-args-path split data-cache-path mock-data dataloader-type
num-workers reset-position-ids reset-attention-mask eod-mask-loss no-create-attention-mask-in-dataloader no-mmap-bin-files
tokenizer-type tokenizer-model vocab-file merge-file
log-interval timing-log-level timing-log-option log-throughput log-params-norm log-num-zeros-in-grad log-memory-interval
tensorboard-dir tensorboard-log-interval tensorboard-queue-size log-timers-to-tensorboard log-memory-to-tensorboard
log-validation-ppl-to-tensorboard log-world-size-to-tensorboard no-log-loss-scale-to-tensorboard
disable-log-loss-scale-to-tensorboard wandb-project wandb-exp-name wandb-entity wandb-save-dir profile
num-experts moe-layer-freq moe-ffn-hidden-size moe-router-topk moe-router-pre-softmax moe-router-score-function
moe-router-topk-scaling-factor moe-router-num-groups moe-router-group-topk moe-router-dtype moe-router-enable-expert-bias
moe-router-bias-update-rate moe-router-load-balancing-type moe-aux-loss-coeff moe-z-loss-coeff moe-input-jitter-eps
moe-token-dispatcher-type moe-expert-capacity-factor moe-pad-expert-input-to-capacity moe-token-drop-policy moe-grouped-gemm
moe-permute-fusion moe-router-fusion moe-shared-expert-intermediate-size moe-shared-expert-gate moe-shared-expert-overlap
moe-per-layer-logging
rampup-batch-size use-mcore-models use-flash-attn openai-gelu onnx-safe apply-residual-connection-post-layernorm
fp16-lm-cross-entropy rope-scaling-factor use-dist-ckpt dist-ckpt-format ckpt-fully-parallel-save
batch-size warmup model-parallel-size checkpoint-activations init-method-xavier-uniform
DDP-impl no-query-key-layer-scaling checkpoint-num-layers distribute-checkpointed-activations
no-async-tensor-model-parallel-allreduce standalone-embedding-stage pipeline-model-parallel-split-rank use-legacy-models`

// deepspeedNames are names of Megatron-DeepSpeed in the BLOOM era, and the old
// data flags.
const deepspeedNames = `pp-partition-method embed-layernorm partition-activations curriculum-learning deepspeed
deepspeed-config zero-stage dataset-impl data-impl pad-vocab-size-to activations-checkpoint-method`

// Claim: every flag of Megatron has a class, and each class says why.
func TestEveryMegatronFlagHasAClass(t *testing.T) {
	for _, name := range strings.Fields(megatronNames + " " + deepspeedNames) {
		f := table.Find(name)
		switch {
		case f == nil:
			t.Errorf("--%s is not in the table", name)
		case f.Class == table.Works && (f.Help == "" || f.To == ""):
			t.Errorf("--%s works, but has no help or goes nowhere", name)
		case f.Class != table.Works && f.Why == "":
			t.Errorf("--%s is %s without a reason", name, f.Class)
		}
	}
}

// Claim: a refused flag ends the reading with its reason, an accepted one leaves
// the Config as it was and says so once.
func TestClassesAreWhatTheySay(t *testing.T) {
	base, _, err := ParseWith(everything, baseline())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range table.All() {
		if f.Class == table.Works {
			continue
		}
		args := append(baseline(), withValue(f)...)
		got, report, err := ParseWith(everything, args)
		switch {
		case f.Class == table.Refused && (err == nil || !strings.Contains(err.Error(), f.Why)):
			t.Errorf("%v: error %v, want the reason %q", withValue(f), err, f.Why)
		case f.Class == table.Accepted && err != nil:
			t.Errorf("%v: %v", withValue(f), err)
		case f.Class == table.Accepted && (len(report.Notices) != 1 || !strings.Contains(report.Notices[0], "--"+f.Name)):
			t.Errorf("%v: notices %q", withValue(f), report.Notices)
		case f.Class == table.Accepted && asJSON(got) != asJSON(base):
			t.Errorf("%v: changed the Config", withValue(f))
		}
	}
}

// everything is a caller that can do all that the table describes.
var everything = Options{Layouts: true, Experts: true}

func baseline() []string {
	return strings.Fields(`--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --max-position-embeddings 64
		--micro-batch-size 2 --global-batch-size 8 --train-iters 100 --lr 1e-3 --data-path a --vocab-size 250`)
}

func asJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// withValue is f on a command line, with a value unlike its default.
func withValue(f *table.Flag) []string {
	args := []string{"--" + f.Name}
	if f.Kind == table.Switch {
		return args
	}
	if strings.HasSuffix(f.Name, "-weighted-split-paths") {
		return append(args, "n: 1 0:1 a") // one word with blanks
	}
	if values, ok := particular[f.Name]; ok {
		return append(args, strings.Fields(values)...)
	}
	switch {
	case len(f.Choices) > 0:
		for _, c := range f.Choices {
			if c != f.Default {
				return append(args, c)
			}
		}
		return append(args, f.Choices[0])
	case f.Kind == table.Int || f.Kind == table.Ints:
		return append(args, "4")
	case f.Kind == table.Float || f.Kind == table.Floats:
		return append(args, "0.5")
	}
	return append(args, "x")
}

// particular are values that the rules of withValue do not find.
var particular = map[string]string{
	"moe-router-group-best": "2", "rotary-scaling-factor": "2", "hidden-size": "128", "max-position-embeddings": "128", "kv-channels": "32", "num-layers": "8", "ffn-hidden-size": "100",
	"num-query-groups": "2", "window-size": "7,0", "rampup-batch-size": "4 2 100", "step-batch-size-schedule": "0:4,1K:8",
	"global-batch-size": "16", "seq-length": "32", "train-samples": "640", "num-attention-heads": "8",
	"pipeline-model-parallel-layout": "Ett|ttL", "world-size": "4", "tensor-model-parallel-size": "2",
	"pipeline-model-parallel-size": "2", "context-parallel-size": "2", "expert-model-parallel-size": "2",
	"expert-tensor-parallel-size": "2", "cp-comm-type": "a2a", "hierarchical-context-parallel-sizes": "2 1",
	"decoder-first-pipeline-num-layers": "1", "decoder-last-pipeline-num-layers": "1",
	"num-layers-per-virtual-pipeline-stage": "1", "num-virtual-stages-per-pipeline-rank": "2",
	"num-distributed-optimizer-instances": "2", "make-vocab-size-divisible-by": "16", "padded-vocab-size": "300",
	"lr": "2e-3", "min-lr": "1e-4", "lr-warmup-init": "1e-4", "lr-decay-samples": "320", "lr-warmup-samples": "32",
	"lr-warmup-iters": "5", "lr-warmup-fraction": "0.1", "lr-wsd-decay-samples": "64", "lora-rank-pattern": "q_proj=4", "lora-alpha-pattern": "q_proj=4", "decoupled-lr": "1e-2", "decoupled-min-lr": "1e-3",
	"start-weight-decay": "0.01", "end-weight-decay": "0.2", "weight-decay-incr-style": "linear",
	"adam-beta2": "0.9", "initial-loss-scale": "1024", "loss-scale-window": "10", "loss-scale": "16",
	"save-retain-interval": "20", "save-interval": "10", "recompute-modules": "mlp", "moe-layer-freq": "[1,0]*2",
	"moe-router-load-balancing-type": "seq_aux_loss", "moe-router-group-topk": "1", "moe-router-num-groups": "2", "moe-router-topk": "3",
	"log-memory-interval": "200", "tensorboard-log-interval": "3", "profile-step-end": "9", "split": "8,1,1",
	"linear-attention-freq": "2", "short-conv-freq": "2", "short-conv-kernel-dim": "4", "mamba-layer-freq": "2", "hybrid-layer-pattern": "*-*-*-", "mamba-head-dim": "8", "mamba-num-groups": "1", "mamba-num-heads": "8", "mamba-dt-max": "0.5", "linear-num-value-heads": "64", "linear-conv-kernel-dim": "2", "no-rope-freq": "2", "window-attn-skip-freq": "2", "rotary-percent": "0.5", "phase-timeout-factor": "3", "eval-global-batch-size": "16", "eval-micro-batch-size": "1",
	"moe-expert-capacity-factor": "1.5", "ddp-num-buckets": "3", "train-iters": "50", "encoder-seq-length": "32",
	"seed": "7", "rope-scaling-factor": "4", "lr-decay-iters": "90", "lr-wsd-decay-iters": "5", "pp-partition-method": "uniform",
	"moe-aux-loss-coeff": "0.01", "moe-imbalance-limit": "8",
	"rope-parameters": `{"rope_type":"linear","factor":4}`, "window-rope-parameters": `{"rope_type":"default","rope_theta":5}`,
}

// companions make a flag legal or visible.
var companions = map[string]string{
	"mtp-num-layers": "--position-embedding-type rope", "mtp-loss-scaling-factor": mtpLine, "mtp-use-repeated-layer": mtpLine, "mtp-detach-heads": mtpLine,
	"use-mup": "--mup-base-hidden-size 4", "mup-base-hidden-size": "--use-mup", "mup-embedding-mult": "--use-mup --mup-base-hidden-size 4", "mup-output-mult": "--use-mup --mup-base-hidden-size 4", "mup-base-head-dim": "--use-mup --mup-base-hidden-size 4", "mup-attn-scale-power": "--use-mup --mup-base-hidden-size 4",
	"kv-shared-layers": "--num-layers 8", "double-wide-mlp": "--kv-shared-layers 2",
	"full-attention-kv-channels": "--window-size 3,0 --window-attn-skip-freq 2", "full-attention-query-groups": "--window-size 3,0 --window-attn-skip-freq 2",
	"mamba-state-dim": "--mamba-layer-freq 2 --disable-bias-linear --normalization RMSNorm --mamba-head-dim 4 --mamba-num-groups 2", "mamba-conv-kernel-dim": "--mamba-layer-freq 2 --disable-bias-linear --normalization RMSNorm --mamba-head-dim 4 --mamba-num-groups 2", "no-mamba-conv-bias": "--mamba-layer-freq 2 --disable-bias-linear --normalization RMSNorm --mamba-head-dim 4 --mamba-num-groups 2", "mamba-dt-min": "--mamba-layer-freq 2 --disable-bias-linear --normalization RMSNorm --mamba-head-dim 4 --mamba-num-groups 2", "mamba-dt-max": "--mamba-layer-freq 2 --disable-bias-linear --normalization RMSNorm --mamba-head-dim 4 --mamba-num-groups 2", "mamba-num-heads": "--mamba-layer-freq 2 --disable-bias-linear --normalization RMSNorm --mamba-head-dim 4 --mamba-num-groups 2", "mamba-layer-freq": "--disable-bias-linear --normalization RMSNorm --mamba-head-dim 4 --mamba-num-groups 2", "mamba-head-dim": "--mamba-layer-freq 2 --disable-bias-linear --normalization RMSNorm --mamba-num-groups 2", "mamba-num-groups": "--mamba-layer-freq 2 --disable-bias-linear --normalization RMSNorm --mamba-head-dim 4",
	"short-conv-freq": "--disable-bias-linear", "short-conv-kernel-dim": "--disable-bias-linear --short-conv-freq 2",
	"experimental-attention-variant": "--linear-attention-freq 2", "linear-attention-freq": "--experimental-attention-variant gated_delta_net", "linear-conv-kernel-dim": "--experimental-attention-variant gated_delta_net --linear-attention-freq 2", "linear-key-head-dim": "--experimental-attention-variant gated_delta_net --linear-attention-freq 2",
	"linear-value-head-dim": "--experimental-attention-variant gated_delta_net --linear-attention-freq 2", "linear-num-key-heads": "--experimental-attention-variant gated_delta_net --linear-attention-freq 2", "linear-num-value-heads": "--experimental-attention-variant gated_delta_net --linear-attention-freq 2",
	"multi-latent-attention": "--position-embedding-type rope", "q-lora-rank": "--multi-latent-attention --position-embedding-type rope", "kv-lora-rank": "--multi-latent-attention --position-embedding-type rope", "qk-head-dim": "--multi-latent-attention --position-embedding-type rope",
	"qk-pos-emb-head-dim": "--multi-latent-attention --position-embedding-type rope", "v-head-dim": "--multi-latent-attention --position-embedding-type rope", "rope-type": "--multi-latent-attention --position-embedding-type rope", "rotary-scaling-factor": "--multi-latent-attention --position-embedding-type rope", "mscale": "--multi-latent-attention --position-embedding-type rope", "mscale-all-dim": "--multi-latent-attention --position-embedding-type rope",
	"num-query-groups": "--group-query-attention", "rotary-base": "--position-embedding-type rope",
	"rope-scaling-factor": "--use-rope-scaling", "no-rope-freq": "--position-embedding-type rope",
	"window-attn-skip-freq": "--window-size 7,0", "qk-layernorm-whole": "--qk-layernorm",
	"group-query-attention": "--num-query-groups 2", "weight-decay-incr-style": "--start-weight-decay 0.01 --end-weight-decay 0.1",
	"start-weight-decay": "--end-weight-decay 0.1 --weight-decay-incr-style cosine", "end-weight-decay": "--start-weight-decay 0 --weight-decay-incr-style cosine",
	"fp32-residual-connection": "--bf16", "sequence-parallel": "--tensor-model-parallel-size 2 --world-size 2",
	"tp-comm-overlap":            "--tensor-model-parallel-size 2 --world-size 2 --sequence-parallel",
	"tensor-model-parallel-size": "--world-size 2", "pipeline-model-parallel-size": "--world-size 2", "context-parallel-size": "--world-size 2",
	"moe-use-upcycling":          "--load dense --num-experts 4",
	"moe-apply-probs-on-input":   "--moe-router-topk 1 --moe-router-pre-softmax",
	"expert-model-parallel-size": "--world-size 2 --num-experts 4", "expert-tensor-parallel-size": "--world-size 2 --num-experts 4 --disable-bias-linear",
	"hierarchical-context-parallel-sizes":              "--context-parallel-size 2 --world-size 2",
	"cp-zigzag-per-document":                           "--context-parallel-size 2 --world-size 2 --reset-attention-mask",
	"decoder-first-pipeline-num-layers":                "--pipeline-model-parallel-size 2 --world-size 2",
	"decoder-last-pipeline-num-layers":                 "--pipeline-model-parallel-size 2 --world-size 2",
	"num-layers-per-virtual-pipeline-stage":            "--pipeline-model-parallel-size 2 --world-size 2",
	"num-virtual-stages-per-pipeline-rank":             "--pipeline-model-parallel-size 2 --world-size 2",
	"pipeline-model-parallel-layout":                   "--pipeline-model-parallel-size 2 --world-size 2",
	"account-for-embedding-in-pipeline-split":          "--num-layers 5",
	"account-for-loss-in-pipeline-split":               "--num-layers 5",
	"microbatch-group-size-per-virtual-pipeline-stage": "--pipeline-model-parallel-size 2 --world-size 2",
	"num-distributed-optimizer-instances":              "--world-size 4 --use-distributed-optimizer",
	"overlap-param-gather":                             "--use-distributed-optimizer --overlap-grad-reduce",
	"distribute-saved-activations":                     "--tensor-model-parallel-size 2 --world-size 2 --recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
	"recompute-granularity":                            "--recompute-method uniform --recompute-num-layers 1",
	"save":                                             "--save-interval 10", "ckpt-step": "--load x", "use-checkpoint-args": "--load x",
	"save-retain-interval": "--save-interval 10", "step-batch-size-schedule": "--rampup-batch-size",
	"lr-decay-style": "", "lr-wsd-decay-iters": "--lr-decay-style WSD", "lr-decay-samples": "samples", "lr-warmup-samples": "samples",
	"lr-wsd-decay-samples": "samples", "train-samples": "samples", "moe-router-enable-expert-bias": "--moe-router-score-function sigmoid",
	"moe-router-num-groups": "--moe-router-group-topk 1", "moe-router-group-topk": "--moe-router-num-groups 2", "moe-router-group-best": "--moe-router-num-groups 2 --moe-router-group-topk 2",
	"moe-shared-expert-overlap": "--moe-shared-expert-intermediate-size 32 --disable-bias-linear --moe-token-dispatcher-type alltoall",
	"moe-shared-expert-gate":    "--moe-shared-expert-intermediate-size 32 --disable-bias-linear", "moe-shared-expert-intermediate-size": "--disable-bias-linear", "moe-latent-size": "--disable-bias-linear", "moe-pad-expert-input-to-capacity": "--moe-expert-capacity-factor 1",
	"profile-step-start": "--profile-step-end 30", "add-qkv-bias": "--disable-bias-linear", "memory-centric-tiling": "--zero-stage 3 --offload-folder d", "decoupled-min-lr": "--decoupled-lr 1e-2",
	"moe-router-quantile-balancing-ema": "--moe-router-load-balancing-type quantile_balancing", "moe-global-aux-exact": "--moe-router-load-balancing-type global_aux_loss",
	"rope-parameters": "--position-embedding-type rope", "window-rope-parameters": "--position-embedding-type rope --window-size 4,0", "qk-layernorm-after-rope": "--qk-layernorm",
	"parallel-one-norm": "--parallel-residual", "add-proj-bias": "--disable-bias-linear", "activation-func-clamp-value": "--swiglu", "glu-linear-offset": "--swiglu",
	"query-growth-everywhere": "--query-growth 0.1 --query-growth-from 8", "query-growth": "--query-growth-from 8", "query-growth-from": "--query-growth 0.1", "alibi-by-key": "--position-embedding-type alibi",
	"tuning": "--finetune-data x", "lora-alpha": "--lora-rank 2", "lora-rank-pattern": "--lora-rank 2", "lora-alpha-pattern": "--lora-rank 2", "loraplus-lr-ratio": "--lora-rank 2", "lora-dropout": "--lora-rank 2", "lora-target-modules": "--lora-rank 2", "lora-target-parameters": "--lora-rank 2", "lora-modules-to-save": "--lora-rank 2", "lora-train-bias": "--lora-rank 2", "use-rslora": "--lora-rank 2", "use-dora": "--lora-rank 2",
	"quantize-base": "--lora-rank 2 --load x", "save-adapter-only": "--lora-rank 2 --load x", "double-quant": "--lora-rank 2 --load x --quantize-base nf4",
	"fp8-recipe": "--fp8-format hybrid", "fp8-amax-history-len": "--fp8-format hybrid", "fp8-amax-compute-algo": "--fp8-format hybrid", "fp8-margin": "--fp8-format hybrid", "no-fp8-wgrad": "--fp8-format hybrid",
	"reduction-leaves":            "--layout-invariant",
	"sequence-leaves":             "--layout-invariant",
	"moe-router-bias-update-rate": "--moe-router-enable-expert-bias --moe-router-score-function sigmoid",
}

// mtpLine asks for multi-token prediction.
const mtpLine = "--position-embedding-type rope --mtp-num-layers 1"

// Claim: every flag that works changes the Config.
func TestEveryWorkingFlagChangesTheConfig(t *testing.T) {
	reports := []string{"config", "print-config", "help", "model", "is-hybrid-model", "spec"} // these change what is printed, or stand for or repeat other flags
	for _, f := range table.All() {
		if f.Class != table.Works || slices.Contains(reports, f.Name) {
			continue
		}
		with := baseline()
		companion := companions[f.Name]
		switch {
		case companion == "samples":
			with = slices.DeleteFunc(with, func(a string) bool { return a == "--train-iters" || a == "100" })
			companion = "--train-samples 1000"
			if f.Name == "lr-wsd-decay-samples" {
				companion += " --lr-decay-style WSD"
			}
			if f.Name == "train-samples" {
				companion = ""
			}
		case f.Name == "step-batch-size-schedule":
			companion = ""
		case f.Owner == table.Experts && f.Name != "num-experts":
			companion += " --num-experts 4"
		case strings.HasSuffix(f.Name, "-data-path"), strings.Contains(f.Name, "-weighted-split-paths"), f.Name == "data-args-path", f.Name == "per-split-data-args-path", f.Name == "mock-data", f.Name == "finetune-data", f.Name == "tuning":
			with = slices.DeleteFunc(with, func(a string) bool { return a == "--data-path" || a == "a" })
		}
		with = append(with, strings.Fields(companion)...)
		without := slices.Clone(with)
		with = append(with, withValue(f)...)
		// Where the companion needs the flag, the comparison is with the plain line.
		before, _, err := ParseWith(Options{Layouts: true, Experts: true, Partial: true}, without)
		if err != nil {
			if before, _, err = ParseWith(everything, baseline()); err != nil {
				t.Fatal(err)
			}
		}
		after, _, err := ParseWith(everything, with)
		if err != nil {
			t.Errorf("%v: %v", withValue(f), err)
			continue
		}
		if asJSON(before) == asJSON(after) {
			t.Errorf("%v leaves the Config as it was", withValue(f))
		}
	}
}
