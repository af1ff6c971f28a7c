package table

const (
	noMuon    = "Muon is not built in yet; use --optimizer adam"
	noLion    = "Lion is not built in; use --optimizer adam"
	stateHere = "with --optimizer-cpu-offload the device updates what lies in the host's memory, piece by piece while the next one travels; leave it out"
)

// optimizerFlags say how parameters move.
var optimizerFlags = owned(Optimizer,
	works("optimizer", String, "adam", "Optimizer.Kind", "update rule").choices("adam", "sgd").
		but("not built in; use adam", "muon", "dist_muon", "lion", "soap", "adaptive_muon"),
	works("lr", Float, "", "Optimizer.LR", "peak learning rate").from(0, rates),
	works("min-lr", Float, "0", "Optimizer.MinLR", "learning rate at the end of the decay").from(0, rates),
	works("lr-decay-style", String, "linear", "Optimizer.DecayStyle", "curve from peak to minimum").
		choices("constant", "linear", "cosine", "inverse-square-root", "WSD"),
	works("lr-decay-iters", Int, "", "Optimizer.DecayIters", "steps until the minimum (--train-iters)").from(1, sizes),
	works("lr-decay-samples", Int, "", "Optimizer.DecaySamples", "the same in samples (--train-samples)").from(1, samples),
	works("lr-warmup-iters", Int, "0", "Optimizer.WarmupIters", "steps of linear warm-up").from(0, sizes),
	works("lr-warmup-samples", Int, "0", "Optimizer.WarmupSamples", "the same in samples").from(0, samples),
	works("lr-warmup-fraction", Float, "", "Optimizer.WarmupFraction", "the same as a share of the decay").below(0, 1),
	works("lr-warmup-init", Float, "0", "Optimizer.WarmupInit", "learning rate of the first step of a warm-up").from(0, rates),
	works("lr-wsd-decay-style", String, "exponential", "Optimizer.WSDDecayStyle", "final descent of WSD").
		choices("exponential", "linear", "cosine", "minus_sqrt"),
	works("lr-wsd-decay-iters", Int, "", "Optimizer.WSDDecayIters", "its length in steps").from(1, sizes),
	works("lr-wsd-decay-samples", Int, "", "Optimizer.WSDDecaySamples", "its length in samples").from(1, samples),
	works("decoupled-lr", Float, "", "Optimizer.DecoupledLR", "peak learning rate of embedding and output layer").from(0, rates),
	works("decoupled-min-lr", Float, "", "Optimizer.DecoupledMinLR", "their minimum").from(0, rates),
	works("override-opt-param-scheduler", Switch, "", "Optimizer.OverrideScheduler", "resume with this schedule, not the checkpoint's").alias("override-lr-scheduler"),
	works("use-checkpoint-opt-param-scheduler", Switch, "", "Optimizer.UseCheckpointScheduler", "resume with the checkpoint's schedule").alias("use-checkpoint-lr-scheduler"),
	works("adam-beta1", Float, "0.9", "Optimizer.AdamBeta1", "decay of the first moment").below(0, 1),
	works("adam-beta2", Float, "0.999", "Optimizer.AdamBeta2", "decay of the second moment").below(0, 1),
	works("adam-eps", Float, "1e-8", "Optimizer.AdamEps", "added to the root of the second moment").from(0, 1),
	works("sgd-momentum", Float, "0.9", "Optimizer.SGDMomentum", "momentum of SGD").below(0, 1),
	works("weight-decay", Float, "0.01", "Optimizer.WeightDecay", "of all parameters but norms and biases").from(0, 1000),
	works("start-weight-decay", Float, "", "Optimizer.StartWeightDecay", "at the beginning, with an increasing style").from(0, 1000),
	works("end-weight-decay", Float, "", "Optimizer.EndWeightDecay", "at the end").from(0, 1000),
	works("weight-decay-incr-style", String, "constant", "Optimizer.WeightDecayIncrStyle", "how it grows between the two").choices("constant", "linear", "cosine"),
	works("apply-wd-to-qk-layernorm", Switch, "", "Optimizer.DecayQKNorm", "weight decay on query and key norms too"),
	works("clip-grad", Float, "1.0", "Optimizer.ClipGrad", "largest global gradient norm; 0: no clipping").from(0, 1e9),
	works("optimizer-cpu-offload", Switch, "", "OptimizerCPUOffload", "moments and main parameters in the host's memory (docs/offload.md)"),
	works("optimizer-offload-fraction", Float, "1.0", "OptimizerOffloadFraction", "of the rank's elements whose state --optimizer-cpu-offload puts there, in whole parameters from the first group on (docs/offload.md)").from(0, 1),
	refused("use-precision-aware-optimizer", Switch, "main gradients, main parameters and moments are f32 here; leave it out"),
	accepted("main-grads-dtype", String, "fp32", "main gradients are f32").choices("fp32").but("main gradients are f32 here", "bf16"),
	accepted("main-params-dtype", String, "fp32", "main parameters are f32").choices("fp32").but("main parameters are f32 here", "fp16"),
	accepted("exp-avg-dtype", String, "fp32", "moments are f32").choices("fp32").but("moments are f32 here", "fp16", "bf16", "fp8"),
	accepted("exp-avg-sq-dtype", String, "fp32", "moments are f32").choices("fp32").but("moments are f32 here", "fp16", "bf16", "fp8"),
	refused("no-weight-decay-cond-type", String, "norms and biases never decay; --apply-wd-to-qk-layernorm adds those of queries and keys"),
	refused("warmup", Float, "it was a share of the training; use --lr-warmup-fraction"),
)

// otherOptimizerFlags are of update rules and places of state that are not here.
var otherOptimizerFlags = families(Optimizer,
	allRefused(noLion, floats("lion-beta1 lion-beta2")))

// muonFlags and stateOnHostFlags are of what this program is to have.
var (
	muonFlags = allNotYet(owned(Optimizer, allRefused(noMuon,
		switches("muon-no-split-qkv muon-nesterov muon-use-syrk"),
		ints("muon-num-ns-steps"),
		floats("muon-momentum muon-extra-scale-factor"),
		texts("muon-scale-mode muon-fp32-matmul-prec muon-coefficient-type muon-tp-mode muon-scalar-optimizer"))...)...)
	stateOnHostFlags = allNotYet(owned(Optimizer, allRefused(stateHere,
		switches("use-torch-optimizer-for-cpu-offload overlap-cpu-optimizer-d2h-h2d no-pin-cpu-grads "+
			"no-pin-cpu-params"))...)...)
)
