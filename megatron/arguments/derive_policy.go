package arguments

import (
	"regexp"

	"monotron/megatron/config"
	"monotron/megatron/policy"
)

// policyFlags need --tuning grpo.
var policyFlags = []string{"grpo-group-size", "grpo-iterations", "grpo-clamp-eps-lower", "grpo-clamp-eps-upper", "grpo-kl-beta", "grpo-loss", "grpo-scale-rewards", "grpo-importance",
	"rl-default-temperature", "rl-default-top-p", "rl-default-top-k", "max-completion-length", "reward", "reward-pattern", "reward-command", "reward-timeout"}

// derivePolicy completes the flags of GRPO, and refuses what it does not have.
func (p *parser) derivePolicy() {
	t := &p.Tuning
	// Without GRPO its flags are errors, unless the checkpoint gave them.
	if t.Method != policy.GRPO {
		for _, name := range policyFlags {
			if p.given(name) && p.values[name].direct {
				p.clash(name+" tuning", "--%s needs --tuning grpo; leave the flag out", name)
			}
		}
		t.Policy = config.Policy{}
		return
	}
	// Defaults that depend on other flags. Logits are divided by the temperature in training too, and attention
	// is computed as generation does: else probabilities would differ between the two.
	o := &t.Policy
	o.Sequences, o.Exact = p.Raw.Importance == "sequence", len(p.Raw.Rewards) > 0
	if !p.given("grpo-clamp-eps-upper") {
		o.High = o.Low
	}
	o.MaxTokens = min(o.MaxTokens, p.SeqLength)
	p.AsGenerated = true
	if o.Temperature != 1 {
		p.LogitDivisor = o.Temperature
	}
	// At least one reward.
	if _, err := regexp.Compile(o.Pattern); err != nil {
		p.clash("reward-pattern", "--reward-pattern %q: %v; use the syntax of Go's regular expressions", o.Pattern, err)
	}
	if !o.Exact && o.Pattern == "" && o.Command == "" {
		p.clash("tuning reward", "--tuning grpo needs a reward; give --reward exact, --reward-pattern or --reward-command")
	}
	p.checkPreference()
}

// checkPolicy refuses what GRPO does not have.
func (p *parser) checkPolicy() {
	t, l, m := &p.Tuning, &p.Layout, &p.Model
	p.refuseIf(t.Policy.Beta > 0 && !p.Adapter.Given(), "grpo-kl-beta lora-rank", "--grpo-kl-beta %g needs --lora-rank or --adapter, because the KL divergence is from the model without its adapter; give one, or leave --grpo-kl-beta out", t.Policy.Beta)
	p.refuseIf(l.TP > 1 && l.SequenceParallel, "sequence-parallel tuning", "--sequence-parallel cannot be combined with --tuning grpo, which samples answers one token at a time; leave --sequence-parallel out")
	p.refuseIf(m.Delta != nil, "experimental-attention-variant tuning", "--experimental-attention-variant cannot be combined with --tuning grpo yet; use --tuning sft or dpo")
	p.refuseIf(m.Mamba != nil, "mamba-layer-freq tuning", "--mamba-layer-freq cannot be combined with --tuning grpo yet; use --tuning sft or dpo")
	p.refuseIf(m.MTP != nil, "mtp-num-layers tuning", "--mtp-num-layers cannot be combined with --tuning grpo; leave --mtp-num-layers out")
	p.refuseIf(p.RampupBatchSize != nil || p.StepBatchSizeSchedule != "" || p.DecreaseBatchSizeIfNeeded, "rampup-batch-size tuning", "--rampup-batch-size, --step-batch-size-schedule and --decrease-batch-size-if-needed cannot be combined with --tuning grpo, whose batches all have the same size; leave these flags out")
}

// checkGroups refuses what GRPO does not have, and batches that hold no complete groups.
func (p *parser) checkGroups() {
	if !p.Tuning.Samples() {
		return
	}
	p.checkPolicy()
	if g := p.Tuning.Policy.Group; p.GlobalBatchSize%g != 0 {
		p.clash("global-batch-size grpo-group-size", "--global-batch-size %d is not a multiple of --grpo-group-size %d: the batch size counts answers, and each prompt has a group of answers; change one of the flags", p.GlobalBatchSize, g)
	}
}
