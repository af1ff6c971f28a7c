package arguments

import (
	"slices"
	"strings"
	"sync"

	"monotron/internal/argv"
	"monotron/megatron/arguments/table"
	"monotron/megatron/model"
	"monotron/megatron/optimizer"
	"monotron/megatron/spec"
)

// dependents are flags that have an effect only with another one (any of
// companions). Megatron-LM is silent about them; a run that ignores what was asked of
// it is not what its user believes it to be.
var dependents = []dependent{
	{[]string{"save"}, []string{"save-interval", "keep-last", "keep-best", "save-retain-interval", "async-save", "no-save-optim", "resume-from-save", "save-local-dir"}},
	{[]string{"load", "pretrained-checkpoint"}, []string{"finetune", "no-load-optim", "exit-on-missing-checkpoint", "override-opt-param-scheduler", "use-checkpoint-opt-param-scheduler"}},
	{[]string{"tensorboard-dir"}, []string{"tensorboard-log-interval", "tensorboard-queue-size", "log-timers-to-tensorboard", "log-memory-to-tensorboard",
		"log-validation-ppl-to-tensorboard", "log-world-size-to-tensorboard", "no-log-loss-scale-to-tensorboard"}},
	{[]string{"profile"}, []string{"profile-step-start", "profile-step-end"}},
	{[]string{"sample-prompt"}, []string{"sample-tokens"}},
	{[]string{"finetune-data"}, []string{"finetune-eval-data", "chat-template", "finetune-packing", "train-on-prompts", "no-data-shuffle", "beta", "preference-loss", "label-smoothing", "simpo-gamma", "sft-weight", "kto-desirable-weight", "kto-undesirable-weight", "ref-load"}},
	{[]string{"fp16"}, []string{"loss-scale", "initial-loss-scale", "min-loss-scale", "loss-scale-window", "hysteresis"}},
	{[]string{"fp8-format"}, []string{"fp8-recipe", "first-last-layers-bf16", "fp8-amax-history-len", "fp8-amax-compute-algo", "fp8-margin", "no-fp8-wgrad"}},
	{[]string{"first-last-layers-bf16"}, []string{"num-layers-at-start-in-bf16", "num-layers-at-end-in-bf16"}},
	{[]string{"use-rope-scaling"}, []string{"rope-scaling-factor"}},
	{[]string{"optimizer-cpu-offload"}, []string{"optimizer-offload-fraction"}},
	{[]string{"mtp-num-layers"}, []string{"mtp-loss-scaling-factor", "mtp-use-repeated-layer", "mtp-detach-heads"}},
	{[]string{"memory-checkpoint-interval"}, []string{"replication-jump"}},
	{[]string{"moe-use-upcycling"}, []string{"moe-upcycling-granularity"}},
	{[]string{"lr-warmup-iters", "lr-warmup-samples", "lr-warmup-fraction"}, []string{"lr-warmup-init"}},
}

// chosen are flags that have an effect only with some values of another.
var chosen = []struct {
	by     string
	value  func(o *optimizer.Config) string
	values []string
	flags  []string
}{
	{"lr-decay-style", decayStyle, []string{optimizer.DecayPower}, []string{"lr-decay-power"}},
	{"lr-decay-style", decayStyle, []string{optimizer.DecayRestarts}, []string{"lr-decay-cycles"}},
	{"lr-decay-style", decayStyle, []string{optimizer.DecayWSD}, []string{"lr-wsd-decay-style", "lr-wsd-decay-iters", "lr-wsd-decay-samples"}},
	{"optimizer", optimizerKind, []string{optimizer.Adam, optimizer.Adam8, optimizer.ScheduleFree, optimizer.Muon, optimizer.AdaptiveMuon}, []string{"adam-beta1", "adam-beta2", "adam-eps"}},
	{"optimizer", optimizerKind, []string{optimizer.ScheduleFree}, []string{"schedule-free-r", "schedule-free-weight-lr-power"}},
	{"optimizer", optimizerKind, []string{optimizer.SGD}, []string{"sgd-momentum"}},
	{"optimizer", optimizerKind, []string{optimizer.Lion, optimizer.Muon, optimizer.AdaptiveMuon}, []string{"lion-beta1", "lion-beta2"}},
	{"optimizer", optimizerKind, []string{optimizer.Muon, optimizer.AdaptiveMuon}, []string{"muon-momentum", "muon-nesterov", "muon-no-split-qkv", "muon-split-gate", "muon-per-head", "muon-scale-mode",
		"muon-extra-scale-factor", "muon-coefficient-type", "muon-num-ns-steps", "muon-fp32-matmul-prec", "muon-tp-mode", "muon-scalar-optimizer", "muon-scalar-lr-ratio"}},
	{"optimizer", optimizerKind, []string{optimizer.AdaptiveMuon}, []string{"adaptive-muon-moment2-method", "adaptive-muon-beta2", "adaptive-muon-eps"}},
}

func decayStyle(o *optimizer.Config) string    { return o.DecayStyle }
func optimizerKind(o *optimizer.Config) string { return o.Kind }

// expertDependents are such flags of mixtures.
var expertDependents = []dependent{
	{[]string{"moe-shared-expert-intermediate-size"}, []string{"moe-shared-expert-overlap"}},
	{[]string{"moe-router-enable-expert-bias"}, []string{"moe-router-bias-update-rate"}},
	{[]string{"moe-expert-capacity-factor"}, []string{"moe-token-drop-policy"}},
}

type dependent struct{ companions, flags []string }

// noteIdle names the flags given that have no effect because of another one that
// is not. Flags read from a checkpoint are not the user's.
func (p *parser) noteIdle() {
	if p.options.Partial {
		return
	}
	p.noteDependents(dependents)
	for _, c := range chosen {
		if !slices.Contains(c.values, c.value(&p.Optimizer)) {
			p.idle(c.flags, "without --"+c.by+" "+argv.Or(c.values...))
		}
	}
	if p.Optimizer.DecayStyle == optimizer.DecayConstant && p.Optimizer.MinLR > 0 {
		p.idle([]string{"min-lr", "decoupled-min-lr"}, "with --lr-decay-style "+optimizer.DecayConstant)
	}
	if p.FP8.Format != "" && p.FP8.Recipe != "delayed" {
		p.idle([]string{"fp8-amax-history-len", "fp8-amax-compute-algo", "fp8-margin", "no-fp8-wgrad"}, "without --fp8-recipe delayed")
	}
	p.noteIdleExperts()
	if p.Model.Position != spec.PositionRope {
		p.idle([]string{"rotary-base", "rotary-percent", "rotary-interleaved", "rotary-seq-len-interpolation-factor", "use-rope-scaling", "no-rope-freq"},
			"without --position-embedding-type rope")
	}
}

func (p *parser) noteDependents(list []dependent) {
	for _, d := range list {
		if !slices.ContainsFunc(d.companions, p.isOn) {
			p.idle(d.flags, "without --"+strings.Join(d.companions, " or --"))
		}
	}
}

// noteIdleExperts does so for the flags of mixtures.
func (p *parser) noteIdleExperts() {
	e := p.Model.Experts
	if e == nil {
		p.idle(slices.Concat(mixtureFlags(), []string{"expert-tensor-parallel-size"}), "without --num-experts")
		_, mixtures := model.Modules()
		if p.Recompute.Granularity == "selective" && slices.ContainsFunc(p.Recompute.Modules, func(m string) bool { return slices.Contains(mixtures, m) }) {
			p.notice("--recompute-modules %s: modules of experts have no effect without --num-experts", strings.Join(p.Recompute.Modules, " "))
		}
		return
	}
	p.noteDependents(expertDependents)
	if !slices.Contains(e.Balancing, spec.Quantiles) {
		p.idle([]string{"moe-router-quantile-balancing-ema"}, "without --moe-router-load-balancing-type quantile_balancing")
	}
	if balanced := func(kind string) bool { return kind != spec.NoBalancing }; !slices.ContainsFunc(e.Balancing, balanced) && slices.Max(append(e.AuxLossCoeff, 0)) > 0 {
		p.idle([]string{"moe-aux-loss-coeff"}, "with --moe-router-load-balancing-type none")
	}
	if len(e.Balancing) > 1 && slices.Contains(e.Balancing, spec.NoBalancing) {
		p.notice("--moe-router-load-balancing-type %s: the type none and its --moe-aux-loss-coeff have no effect if another type is given", strings.Join(e.Balancing, " "))
	}
	p.noteRandom(e)
}

// noteRandom notes what chooses experts with --moe-router-force-load-balancing: as in Megatron
// random numbers replace the logits before anything chooses by them.
func (p *parser) noteRandom(e *spec.Experts) {
	if !e.ForceBalance {
		return
	}
	var by []string
	for _, kind := range []string{spec.Sinkhorn, spec.Quantiles} {
		if slices.Contains(e.Balancing, kind) {
			by = append(by, "--moe-router-load-balancing-type "+kind)
		}
	}
	if e.NumGroups > 0 {
		by = append(by, "--moe-router-num-groups")
	}
	if e.ExpertBias {
		by = append(by, "--moe-router-enable-expert-bias")
	}
	if len(by) > 0 {
		p.notice("--moe-router-force-load-balancing replaces the router's logits by random numbers, so this flag also affects %s", strings.Join(by, ", "))
	}
}

// idle is one notice for those of the flags that were typed.
func (p *parser) idle(names []string, reason string) {
	var typed []string
	for _, name := range names {
		if v, ok := p.values[name]; ok && v.direct && p.isOn(name) {
			typed = append(typed, "--"+name)
		}
	}
	switch {
	case len(typed) > 1:
		p.notice("%s: the flags have no effect %s", strings.Join(typed, ", "), reason)
	case len(typed) > 0:
		p.notice("%s: the flag has no effect %s", typed[0], reason)
	}
}

// mixtureFlags are the names of all rows about experts that work, but the one
// that asks for them.
var mixtureFlags = sync.OnceValue(func() (names []string) {
	for _, f := range table.All() {
		if f.Owner == table.Experts && f.Class == table.Works && f.Name != "num-experts" {
			names = append(names, f.Name)
		}
	}
	return names
})
