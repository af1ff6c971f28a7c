package arguments

import (
	"slices"

	"monotron/megatron/spec"
)

// deriveMTP completes multi-token prediction, where it is asked for.
func (p *parser) deriveMTP() {
	m, mtp := &p.Model, p.Raw.MTP
	if mtp.Depths == 0 {
		return
	}
	m.MTP = &mtp
	for _, c := range []struct {
		bad         bool
		flags, what string
	}{
		{m.Position == spec.PositionLearned, "position-embedding-type", "learned positions; use --position-embedding-type rope or none"},
		{m.EmbedNorm, "embed-layernorm", "--embed-layernorm; leave one out"},
		{m.NormBehindSum, "norm-behind-sum", "--norm-behind-sum; leave one out"},
		{p.Tuning.Data != "", "finetune-data", "--finetune-data, which trains only the decoder; leave --mtp-num-layers out"},
		{p.Adapter.Given(), "lora-rank", "an adapter; leave one out"},
		{p.Checkpoint.Upcycle, "moe-use-upcycling", "--moe-use-upcycling; leave one out"},
		{mtp.Repeated && m.Experts != nil && slices.Contains(m.Experts.Balancing, spec.GlobalAuxLoss), "mtp-use-repeated-layer moe-router-load-balancing-type",
			"--mtp-use-repeated-layer and --moe-router-load-balancing-type global_aux_loss, which counts tokens once per micro-batch; use aux_loss or seq_aux_loss"},
	} {
		if c.bad {
			p.clash("mtp-num-layers "+c.flags, "--mtp-num-layers %d cannot be combined with %s", mtp.Depths, c.what)
		}
	}
}
