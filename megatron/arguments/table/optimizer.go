package table

const (
	stateHere = "the update of --optimizer-cpu-offload already runs on the device and overlaps the copies; leave the flag out"
)

// optimizerFlags say how parameters move.
var optimizerFlags = owned(Optimizer,
	works("optimizer", String, "adam", "Optimizer.Kind", "choose the optimizer; adam is AdamW (docs/optimizers.md)").choices("adam", "adamw_8bit", "sgd", "muon", "adaptive_muon", "lion", "schedule_free_adamw").differs("does not have adamw_8bit and schedule_free_adamw").
		but("use muon with --use-distributed-optimizer", "dist_muon").but("this optimizer is not supported; use muon", "soap"),
	works("lr", Float, "", "Optimizer.LR", "set the peak learning rate").from(0, rates),
	works("min-lr", Float, "0", "Optimizer.MinLR", "set the learning rate at the end of the decay").from(0, rates),
	works("lr-decay-style", String, "linear", "Optimizer.DecayStyle", "choose the curve of the learning rate from peak to minimum").
		choices("constant", "linear", "cosine", "inverse-square-root", "WSD", "polynomial", "cosine-restarts").differs("does not have polynomial and cosine-restarts"),
	works("lr-decay-iters", Int, "", "Optimizer.DecayIters", "reach the minimum learning rate after N steps (default: --train-iters)").from(1, sizes),
	works("lr-decay-samples", Int, "", "Optimizer.DecaySamples", "reach the minimum learning rate after N samples (default: --train-samples)").from(1, samples),
	works("lr-warmup-iters", Int, "0", "Optimizer.WarmupIters", "set the number of steps of linear warm-up").from(0, sizes),
	works("lr-warmup-samples", Int, "0", "Optimizer.WarmupSamples", "set the number of samples of linear warm-up").from(0, samples),
	works("lr-warmup-fraction", Float, "", "Optimizer.WarmupFraction", "set the length of the warm-up as a fraction of the decay").below(0, 1),
	works("lr-warmup-init", Float, "0", "Optimizer.WarmupInit", "set the learning rate at the first step of the warm-up").from(0, rates),
	works("lr-decay-power", Float, "1.0", "Optimizer.Power", "with --lr-decay-style polynomial, set the power to which the remaining fraction of the decay is raised").above(0, 100),
	works("lr-decay-cycles", Int, "1", "Optimizer.Cycles", "with --lr-decay-style cosine-restarts, set the number of cosine curves, each of which starts at the peak; with 1 there is no restart").from(1, 1<<20),
	works("lr-wsd-decay-style", String, "exponential", "Optimizer.WSDDecayStyle", "set the curve of the final decay of --lr-decay-style WSD").
		choices("exponential", "linear", "cosine", "minus_sqrt"),
	works("lr-wsd-decay-iters", Int, "", "Optimizer.WSDDecayIters", "set the number of steps of the final decay of --lr-decay-style WSD").from(1, sizes),
	works("lr-wsd-decay-samples", Int, "", "Optimizer.WSDDecaySamples", "set the number of samples of the final decay of --lr-decay-style WSD").from(1, samples),
	works("decoupled-lr", Float, "", "Optimizer.DecoupledLR", "set the peak learning rate of the embedding and the output layer (default: --lr)").from(0, rates),
	works("decoupled-min-lr", Float, "", "Optimizer.DecoupledMinLR", "set the minimum learning rate of the embedding and the output layer").from(0, rates),
	works("override-opt-param-scheduler", Switch, "", "Optimizer.OverrideScheduler", "resume with the schedule of this command line instead of that of the checkpoint").alias("override-lr-scheduler"),
	works("use-checkpoint-opt-param-scheduler", Switch, "", "Optimizer.UseCheckpointScheduler", "resume with the schedule of the checkpoint").alias("use-checkpoint-lr-scheduler"),
	works("adam-beta1", Float, "0.9", "Optimizer.AdamBeta1", "set the decay rate of the first moment").below(0, 1),
	works("adam-beta2", Float, "0.999", "Optimizer.AdamBeta2", "set the decay rate of the second moment").below(0, 1),
	works("adam-eps", Float, "1e-8", "Optimizer.AdamEps", "set the term added to the square root of the second moment").from(0, 1),
	works("schedule-free-r", Float, "0", "Optimizer.AveragePower", "with --optimizer schedule_free_adamw, set the exponent r: the weight of step t in the average is proportional to t^r").from(0, 100),
	works("schedule-free-weight-lr-power", Float, "2", "Optimizer.AverageLRPower", "with --optimizer schedule_free_adamw, set the exponent p: the weight of a step in the average is proportional to m^p, where m is the largest learning rate so far").from(0, 100),
	works("sgd-momentum", Float, "0.9", "Optimizer.SGDMomentum", "set the momentum of SGD").below(0, 1),
	works("weight-decay", Float, "0.01", "Optimizer.WeightDecay", "set the weight decay of all parameters except norms and biases").from(0, 1000),
	works("start-weight-decay", Float, "", "Optimizer.StartWeightDecay", "set the weight decay at the start, with --weight-decay-incr-style linear or cosine").from(0, 1000),
	works("end-weight-decay", Float, "", "Optimizer.EndWeightDecay", "set the weight decay at the end, with --weight-decay-incr-style linear or cosine").from(0, 1000),
	works("weight-decay-incr-style", String, "constant", "Optimizer.WeightDecayIncrStyle", "set the curve from --start-weight-decay to --end-weight-decay").choices("constant", "linear", "cosine"),
	works("decay-expert-biases", Switch, "", "DecayExpertBiases", "also apply weight decay to the biases of experts; trainers that exclude only parameters whose names end in .bias do so for GPT-OSS, where the names of these biases end in another way"),
	works("apply-wd-to-qk-layernorm", Switch, "", "Optimizer.DecayQKNorm", "also apply weight decay to query and key norms"),
	works("clip-grad", Float, "1.0", "Optimizer.ClipGrad", "clip the global gradient to this norm (0 disables clipping)").from(0, 1e9),
	works("optimizer-cpu-offload", Switch, "", "OptimizerCPUOffload", "keep moments and main parameters in host memory (docs/offload.md)"),
	works("optimizer-offload-fraction", Float, "1.0", "OptimizerOffloadFraction", "set the fraction of a rank's optimizer state that --optimizer-cpu-offload keeps in host memory; complete parameters are chosen, in the order of the parameter groups (docs/offload.md)").from(0, 1),
	refused("use-precision-aware-optimizer", Switch, "main gradients, main parameters and moments are always f32; leave the flag out"),
	accepted("main-grads-dtype", String, "fp32", "main gradients are f32").choices("fp32").but("main gradients are always f32; use fp32", "bf16"),
	accepted("main-params-dtype", String, "fp32", "main parameters are f32").choices("fp32").but("main parameters are always f32; use fp32", "fp16"),
	accepted("exp-avg-dtype", String, "fp32", "moments are f32").choices("fp32").but("moments are always f32; use fp32", "fp16", "bf16", "fp8"),
	accepted("exp-avg-sq-dtype", String, "fp32", "moments are f32").choices("fp32").but("moments are always f32; use fp32", "fp16", "bf16", "fp8"),
	refused("no-weight-decay-cond-type", String, "norms and biases never have weight decay; use --apply-wd-to-qk-layernorm to add it to query and key norms"),
	refused("warmup", Float, "this older flag gave the warm-up as a fraction of the training; use --lr-warmup-fraction"),
)

// muonFlags are of Muon and of Lion.
var muonFlags = owned(Optimizer,
	works("muon-momentum", Float, "0.9", "Optimizer.Muon.Momentum", "set the decay rate of Muon's mean of gradients").below(0, 1),
	works("muon-nesterov", Switch, "", "Optimizer.Muon.Nesterov", "use Nesterov momentum: step along a weighted mean of the gradient and of Muon's mean of gradients"),
	works("muon-no-split-qkv", Switch, "", "Optimizer.Muon.FullQKV", "update the weight of queries, keys and values as one matrix, not as three"),
	works("muon-split-gate", Switch, "", "Optimizer.Muon.SplitGate", "update the gate and the up projection of a gated MLP as two matrices, as if they were separate weights (default: one matrix, as in Megatron-LM)"),
	works("muon-per-head", Switch, "", "Optimizer.Muon.PerHead", "update the rows of each head as a separate matrix, in the weights of queries, keys and values"),
	works("muon-scale-mode", String, "spectral", "Optimizer.Muon.Scale", "set the length of the step of a matrix [out, in]: √max(out, in) (spectral), √(out/in) (unit_rms_norm) or √max(1, out/in) (shape_scaling)").
		choices("spectral", "unit_rms_norm", "shape_scaling"),
	works("muon-extra-scale-factor", Float, "1.0", "Optimizer.Muon.Extra", "set the factor on the length of Muon's step; 0.2 gives steps as long as AdamW's").from(0, 1000),
	works("muon-coefficient-type", String, "quintic", "Optimizer.Muon.Coefficients", "set the coefficients of the Newton-Schulz iteration").
		choices("simple", "quintic", "polar_express", "polar_express_nanochat", "cans", "aol", "deepseekv4", "cubic5").
		differs("accepts the names of NVIDIA's Emerging-Optimizers, which are checked when a run starts; does not have polar_express_nanochat"),
	works("muon-num-ns-steps", Int, "5", "Optimizer.Muon.Steps", "set the number of steps of the Newton-Schulz iteration").from(1, 100),
	works("muon-fp32-matmul-prec", String, "medium", "Optimizer.Muon.Precision", "set the precision of the Newton-Schulz iteration: bf16 (medium) or f32 (high)").
		choices("medium", "high").but("PyTorch has no such precision; use medium", "low"),
	works("muon-tp-mode", String, "duplicated", "Optimizer.Muon.TPMode", "choose the matrix that Muon orthogonalizes under tensor parallelism: the complete weight, or each rank's part of it").
		choices("duplicated", "blockwise").but("use duplicated, which gives the same updates", "distributed"),
	works("muon-scalar-optimizer", String, "adam", "Optimizer.Muon.Vectors", "choose the optimizer of embeddings, output layer, norms and biases").choices("adam", "lion"),
	works("muon-scalar-lr-ratio", Float, "", "Optimizer.Muon.VectorRate", "multiply the learning rate of the parameters that --muon-scalar-optimizer updates by this number (default: 1)").above(0, 1e6),
	works("adaptive-muon-moment2-method", String, "adamuon", "Optimizer.Muon.Moment2", "with --optimizer adaptive_muon, choose the second moments: of each element (adamuon), or of each row or column (normuon)").
		choices("adamuon", "normuon").but("use normuon or adamuon", "namo"),
	works("adaptive-muon-beta2", Float, "0.95", "Optimizer.Muon.Beta2", "with --optimizer adaptive_muon, set the decay rate of the second moments").below(0, 1),
	works("adaptive-muon-eps", Float, "1e-8", "Optimizer.Muon.Eps", "with --optimizer adaptive_muon, set the least value of the second moments (normuon), or the term that is added to their square roots (adamuon)").from(0, 1),
	accepted("muon-use-syrk", Switch, "", "no matrix product depends on this flag"),
	works("lion-beta1", Float, "0.95", "Optimizer.LionBeta1", "set the weight of Lion's mean of gradients in the sum whose sign gives the step").below(0, 1),
	works("lion-beta2", Float, "0.98", "Optimizer.LionBeta2", "set the decay rate of Lion's mean of gradients").below(0, 1),
)

// stateOnHostFlags tune Megatron's optimizer offload.
var (
	stateOnHostFlags = allNotYet(owned(Optimizer, allRefused(stateHere,
		switches("use-torch-optimizer-for-cpu-offload overlap-cpu-optimizer-d2h-h2d no-pin-cpu-grads "+
			"no-pin-cpu-params"))...)...)
)
