package table

const (
	noProduct = "mixers of gated delta products are not supported; use --hybrid-layer-pattern with M, a state-space scan"
	f32States = "states of scans and convolutions are always f32; leave the flag out"
	noRL      = "this setting of reinforcement learning is not supported; use --tuning grpo"
	noVision  = "vision models are not supported; this program pretrains GPT models"
	noBERT    = "BERT, T5 and retrieval models are not supported; this program pretrains GPT models"
	noEngine  = "inference has its own commands; use `monotron generate` or `monotron serve`"
	useLaunch = "use `monotron launch` with --auto-restart or --max-restarts to restart ranks"
	noResume  = "use SIGTERM instead: the run saves and exits with code 75"
	noTuning  = "prompt formats cannot be chosen by name; use --finetune-data FILE.jsonl, which formats prompts with the tokenizer's chat template"
)

// outsideFlags belong to other programs in Megatron's tree that share its parser.
var outsideFlags = owned(Outside,
	refused("yaml-cfg", String, "Megatron's YAML files are not supported; use --config with a YAML file of the names and values of flags"),
	refused("check-for-spiky-loss", Switch, "loss spikes are always reported; use --alert-command to act on them"),
	accepted("enable-experimental", Switch, "", "no feature of this program is marked as experimental"),
	accepted("te-rng-tracker", Switch, "", "random numbers come from counters, so there is no state to track"),
)

// otherProgramFlags belong to complete parts of Megatron-LM that are not here.
var otherProgramFlags = families(Outside,
	allRefused(noProduct,
		switches("gdp-cutedsl-kernel"),
		ints("gdp-num-householder gdp-num-chunk-states-to-recompute")),
	allRefused(f32States,
		texts("mamba-training-ssm-states-dtype mamba-inference-conv-states-dtype mamba-inference-ssm-states-dtype")),
	allRefused(noRL,
		switches("perform-rl-step rl-durable-rollout-bank grpo-filter-groups-with-same-reward rl-offload-optimizer-during-inference "+
			"rl-persist-cuda-graphs/no-rl-persist-cuda-graphs rl-partial-rollouts/no-rl-partial-rollouts "+
			"rl-inference-logprobs-is-correction/no-rl-inference-logprobs-is-correction rl-use-sequence-packing/no-rl-use-sequence-packing "+
			"rl-training-cuda-graphs/no-rl-training-cuda-graphs "+
			"rl-offload-inference-model-weights-when-idle/no-rl-offload-inference-model-weights-when-idle "+
			"rl-verify-model-weights-swap/no-rl-verify-model-weights-swap rl-skip-bos-token/no-rl-skip-bos-token rl-profile"),
		ints("rl-prompts-per-eval grpo-prompts-per-step rl-max-inflight-requests rl-rollout-bank-max-bytes "+
			"rl-sequence-packing-max-sequences-per-bin rl-inference-tensor-model-parallel-size "+
			"rl-inference-pipeline-model-parallel-size rl-inference-expert-model-parallel-size "+
			"rl-inference-expert-tensor-model-parallel-size rl-inference-model-unified-memory-level"),
		floats("rl-generation-lag grpo-entropy-term-weight "+
			"rl-importance-sampling-truncation-coef"),
		texts("refit-method rl-submission-granularity rl-consumption-granularity rl-rollout-bank-dir langrl-env-config "+
			"rl-kv-cache-management-mode rl-sequence-packing-algo rl-profile-dir"),
		several("rl-inference-parsers")),
	allRefused(noVision,
		switches("vision-pretraining dino-norm-last-layer"),
		ints("img-h img-w num-classes num-channels patch-dim iter-per-epoch dino-local-img-size dino-local-crops-number "+
			"dino-head-hidden-size dino-bottleneck-size dino-warmup-teacher-temp-epochs"),
		floats("classes-fraction data-per-class-fraction head-lr-mult mask-factor dino-freeze-last-layer dino-warmup-teacher-temp "+
			"dino-teacher-temp"),
		texts("mask-type vision-pretraining-type vision-backbone-type swin-backbone-type")),
	allRefused(noBERT,
		switches("biencoder-shared-query-context-model use-one-sent-docs retriever-score-scaling output-bert-embeddings"),
		ints("relative-attention-num-buckets relative-attention-max-distance ict-head-size biencoder-projection-dim indexer-batch-size "+
			"indexer-log-interval"),
		floats("mask-prob short-seq-prob sample-rate query-in-block-prob"),
		texts("ict-load bert-load titles-data-path evidence-data-path block-data-path embedding-path bert-embedder-type"),
		several("retriever-report-topk-accuracies")),
	allRefused(noEngine,
		switches("inference-fuse-tp-communication inference-disable-triton-nvls-kernels inference-moe-disable-fused-quant-kernels "+
			"inference-rng-tracker inference-dynamic-batching inference-dynamic-batching-track-paused-request-events "+
			"inference-dynamic-batching-track-generated-token-events inference-cuda-graph-all-prefills "+
			"inference-dynamic-batching-prefix-caching/no-inference-dynamic-batching-prefix-caching "+
			"inference-text-gen-server-logging/no-inference-text-gen-server-logging inference-wandb-logging/no-inference-wandb-logging "+
			"inference-use-synchronous-zmq-collectives/no-inference-use-synchronous-zmq-collectives "+
			"inference-disable-ep-consensus/no-inference-disable-ep-consensus use-legacy-static-engine decode-only-cuda-graphs "+
			"enable-chunked-prefill flash-decode nccl-all-reduce-for-prefill use-same-sampling-seed-across-dp-ranks "+
			"moe-pad-experts-for-cuda-graph-inference"),
		ints("inference-batch-times-seqlen-threshold inference-max-requests inference-max-seq-length inference-dynamic-batching-block-size "+
			"inference-dynamic-batching-max-requests inference-dynamic-batching-max-tokens inference-dynamic-batching-num-cuda-graphs "+
			"inference-cuda-graph-max-tokens inference-dynamic-batching-unified-memory-level "+
			"inference-dynamic-batching-cuda-graph-mixed-prefill-count inference-logging-step-interval inference-coordinator-port "+
			"max-tokens-to-oom num-speculative-tokens mlp-chunks-for-prefill"),
		floats("inference-dynamic-batching-buffer-size-gb inference-dynamic-batching-paused-buffer-size-gb "+
			"inference-dynamic-batching-mamba-memory-ratio inference-dynamic-batching-prefix-caching-routing-alpha "+
			"inference-dynamic-batching-prefix-caching-mamba-gb"),
		texts("inference-cuda-graph-scope inference-grouped-gemm-backend inference-moe-token-dispatcher-type "+
			"inference-dynamic-batching-prefix-caching-eviction-policy inference-dynamic-batching-prefix-caching-coordinator-policy "+
			"inference-dynamic-batching-cuda-graph-sizing-distribution inference-dynamic-batching-sampling-backend "+
			"inference-dynamic-batching-async-sched-mode inference-dynamic-batching-logprobs-mode inference-shards symmetric-ar-type")),
	allRefused(useLaunch,
		switches("enable-ft-package calc-ft-timeouts inprocess-restart inprocess-empty-cuda-cache"),
		ints("ft-num-warmup-iters inprocess-max-iterations inprocess-active-world-size"),
		floats("inprocess-monitor-thread-interval inprocess-monitor-process-interval inprocess-progress-watchdog-interval "+
			"inprocess-heartbeat-interval inprocess-soft-timeout inprocess-hard-timeout inprocess-heartbeat-timeout "+
			"inprocess-barrier-timeout inprocess-completion-timeout inprocess-last-call-wait inprocess-termination-grace-time"),
		texts("inprocess-granularity")),
	allRefused(noResume,
		switches("adlr-autoresume"),
		ints("adlr-autoresume-interval")))

// tuningFlags are Megatron's for training on conversations; tuneFlags do that here.
var tuningFlags = owned(Outside, allRefused(noTuning, switches("sft"), texts("sft-tokenizer-prompt-format"))...)
