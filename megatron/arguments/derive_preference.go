package arguments

import (
	"slices"
	"strings"

	"monotron/dataset/sft"
	"monotron/internal/argv"
	"monotron/megatron/arguments/table"
	"monotron/megatron/config"
	"monotron/megatron/policy"
	"monotron/megatron/preference"
)

// preferenceFlags are those that need certain methods of preference tuning.
var preferenceFlags = []struct {
	name string
	of   []string // methods
}{
	{"preference-loss", []string{preference.DPO, preference.KTO}},
	{"preference-loss-weights", []string{preference.DPO, preference.KTO}},
	{"beta", []string{preference.DPO, preference.IPO, preference.ORPO, preference.SimPO, preference.KTO}},
	{"label-smoothing", []string{preference.DPO, preference.SimPO}},
	{"simpo-gamma", []string{preference.SimPO}},
	{"sft-weight", []string{preference.DPO, preference.IPO, preference.ORPO, preference.SimPO}},
	{"kto-desirable-weight", []string{preference.KTO}},
	{"kto-undesirable-weight", []string{preference.KTO}},
	{"ref-load", []string{preference.DPO, preference.IPO, preference.KTO}},
}

// derivePreference completes the flags of preference tuning, and refuses what it does not have.
func (p *parser) derivePreference() {
	t := &p.Tuning
	// Flags of another method are errors, unless the checkpoint gave them.
	for _, f := range preferenceFlags {
		if p.given(f.name) && p.values[f.name].direct && !slices.Contains(f.of, t.Method) {
			p.clash(f.name+" tuning", "--%s needs --tuning %s; leave the flag out", f.name, argv.Or(f.of...))
		}
	}
	if t.Method == "" || t.Method == config.TuneSupervised || t.Method == policy.GRPO {
		return
	}
	o := &t.Preference
	// Defaults of the methods' papers.
	if !p.given("beta") {
		if o.Beta = 0.1; t.Method == preference.SimPO {
			o.Beta = 2
		}
	}
	if !p.given("sft-weight") && t.Method == preference.ORPO {
		o.SFTWeight = 1
	}
	// Several losses become one weighted sum; sft among them is the weight of --sft-weight.
	loss, sft := preference.Mix(t.Method, o.Losses, o.Weights)
	switch {
	case loss == nil:
		p.clash("preference-loss tuning", "--preference-loss %s is not a loss of --tuning %s; choose %s (sft only together with another loss)", strings.Join(o.Losses, " "), t.Method, strings.Join(preference.Names(t.Method), ", "))
		return
	case len(o.Weights) > 0 && len(o.Weights) != len(o.Losses):
		p.clash("preference-loss-weights preference-loss", "--preference-loss-weights has %d numbers for %d losses; give one number per loss", len(o.Weights), len(o.Losses))
	case sft > 0 && t.Method == preference.KTO:
		p.clash("preference-loss tuning", "--preference-loss sft cannot be combined with --tuning kto; use --tuning dpo")
	case sft > 0 && p.given("sft-weight"):
		p.clash("preference-loss sft-weight", "--preference-loss sft cannot be combined with --sft-weight, which has the same effect; leave one out")
	case sft > 0:
		o.SFTWeight = sft
	}
	// Label smoothing: some losses have none, some are undefined at a value.
	if p.given("label-smoothing") && o.LabelSmoothing > 0 && !loss.Smoothing {
		p.clash("label-smoothing preference-loss", "--label-smoothing cannot be combined with --preference-loss %s; leave --label-smoothing out", loss.Name)
	}
	if loss.Includes("exo_pair") && o.LabelSmoothing == 0 {
		p.clash("label-smoothing preference-loss", "--preference-loss exo_pair needs --label-smoothing above 0, for example 0.001")
	}
	if loss.Includes("robust") && o.LabelSmoothing == 0.5 {
		p.clash("label-smoothing preference-loss", "--preference-loss robust needs --label-smoothing below 0.5: at 0.5, half of the pairs count as wrong, and training has no effect")
	}
	p.checkPreference()
}

// checkMismatched refuses batches in which no answer has another one to be compared with.
func (p *parser) checkMismatched() {
	if loss := p.Tuning.Prefers(); loss != nil && loss.Mismatched() && p.GlobalBatchSize == 1 {
		p.clash("tuning global-batch-size", "--tuning kto needs --global-batch-size 2 or more, because each answer is compared with another answer of the global batch")
	}
}

// checkPreference refuses what losses of rows do not have: those of preferences, and GRPO's.
func (p *parser) checkPreference() {
	t := &p.Tuning
	dropout := func(flag string, rate *float64) {
		if p.given(flag) && p.values[flag].direct && *rate > 0 {
			p.clash(flag+" tuning", "--%s %g cannot be combined with --tuning %s, which compares log-probabilities without dropout; leave the flag out", flag, *rate, t.Method)
		}
		*rate = 0
	}
	dropout("hidden-dropout", &p.Model.HiddenDropout)
	dropout("attention-dropout", &p.Model.AttentionDropout)
	dropout("lora-dropout", &p.Adapter.Dropout)
	p.refuseIf(sft.Packs(t.Packing), "finetune-packing tuning", "--finetune-packing %s cannot be combined with --tuning %s, which gives each answer its own sequence; leave --finetune-packing out", t.Packing, t.Method)
	p.refuseIf(t.LearnPrompts, "train-on-prompts tuning", "--train-on-prompts needs --tuning sft; leave --train-on-prompts out")
	p.refuseIf(p.Layout.CP > 1, "context-parallel-size tuning", "--context-parallel-size %d cannot be combined with --tuning %s, which sums over complete sequences; use tensor, pipeline or data parallelism", p.Layout.CP, t.Method)
	p.refuseIf(p.Model.Experts != nil, "num-experts tuning", "--num-experts cannot be combined with --tuning %s yet; use --tuning sft", t.Method)
	p.refuseIf(p.Raw.EnableGraph || p.Raw.GraphImpl != table.GraphsOff, "cuda-graph-impl tuning", "--cuda-graph-impl cannot be combined with --tuning %s, which copies losses to the host in every micro-batch; leave --cuda-graph-impl out", t.Method)
	p.refuseIf(p.EvalTrainIters > 0, "eval-train-iters tuning", "--eval-train-iters cannot be combined with --tuning %s; leave --eval-train-iters out", t.Method)
}
