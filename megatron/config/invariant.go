package config

import (
	"fmt"
	"slices"

	"monotron/megatron/optimizer"
	"monotron/megatron/spec"
)

// LayoutBound is a part of a run whose sums depend on the layout, which --layout-invariant
// therefore refuses.
type LayoutBound struct {
	Flags   string // that it comes from, separated by spaces
	What    string
	Instead string // what to do
}

// layoutBound is a LayoutBound that may be there.
type layoutBound struct {
	is                   bool
	flags, what, instead string
}

// LayoutBounds are those of a run with leaves (Step.Leaves).
func (c *Run) LayoutBounds() (all []LayoutBound) {
	for _, list := range [][]layoutBound{c.boundModel(), c.boundLayout(), c.boundRun()} {
		for _, b := range list {
			if b.is {
				all = append(all, LayoutBound{b.flags, b.what, b.instead})
			}
		}
	}
	return all
}

// leafPositions is how many positions a leaf of weight gradients has at least, unless --sequence-leaves is given: adding
// a leaf to a grid takes as long for few positions as for many.
const leafPositions = 256

// SequenceLeaves is the default of Step.SequenceLeaves: a power of two up to `leaves`, for samples of `positions`. It depends on no layout.
func SequenceLeaves(leaves, positions int) int {
	n := 1
	for 2*n <= leaves && positions/(2*n) >= leafPositions {
		n *= 2
	}
	return n
}

// LeafAxis is an axis out of which Step.Leaves parts are cut.
type LeafAxis struct {
	Flags string // that its size comes from, separated by spaces
	What  string
	Size  int
}

// LeafAxes are the axes of sums that layouts cut.
func (c *Run) LeafAxes() []LeafAxis {
	m := &c.Model
	// Positions (weight gradients) and MLP channels (output sums) are cut in every model.
	axes := []LeafAxis{{"seq-length", "positions of a sample", c.SeqLength}, {"ffn-hidden-size", "channels of the MLP", m.FFNHiddenSize}}
	// Attention: channels of the heads. Layers may differ in them.
	if l := m.Latent; l != nil {
		heads, flags := m.NumAttentionHeads, "num-attention-heads qk-head-dim qk-pos-emb-head-dim v-head-dim"
		axes = append(axes, LeafAxis{flags, "channels of all queries", heads * l.HeadDim()}, LeafAxis{flags, "channels of all keys and values", heads * (l.QKDim + l.VDim)},
			LeafAxis{flags, "channels of all heads", heads * l.Channels()}, LeafAxis{flags, "channels of all values", heads * l.VDim})
	} else {
		for layer := range m.NumLayers {
			axes = append(axes, attentionAxes(m.AttentionOf(layer))...)
		}
	}
	// Linear attention, convolutions, experts, multi-token prediction.
	if d := m.Delta; d != nil {
		axes = append(axes, LeafAxis{"linear-num-key-heads linear-key-head-dim", "channels of all keys", d.KeyHeads * d.KeyDim},
			LeafAxis{"linear-num-value-heads", "value heads of gated delta nets", d.ValueHeads})
	}
	if m.Conv != nil {
		axes = append(axes, LeafAxis{"hidden-size", "channels of a convolution", m.HiddenSize})
	}
	if s := m.Mamba; s != nil {
		axes = append(axes, LeafAxis{"mamba-num-heads", "heads of state-space scans", s.Heads}, LeafAxis{"mamba-num-groups mamba-state-dim", "channels of B in all groups", s.Groups * s.StateDim})
	}
	if e := m.Experts; e != nil {
		axes = append(axes, LeafAxis{"moe-ffn-hidden-size", "channels of an expert", e.FFNHiddenSize}, LeafAxis{"moe-shared-expert-intermediate-size", "channels of the shared expert", e.SharedFFN})
	}
	if m.MTP != nil {
		axes = append(axes, LeafAxis{"hidden-size", "channels of a layer's input", m.HiddenSize})
	}
	// Layers of one kind give the same axes.
	var once []LeafAxis
	for _, a := range axes {
		if !slices.Contains(once, a) {
			once = append(once, a)
		}
	}
	return once
}

// attentionAxes are those of an attention.
func attentionAxes(m *spec.Model) []LeafAxis {
	return []LeafAxis{{"num-attention-heads kv-channels", "channels of all heads", m.NumAttentionHeads * m.KVChannels},
		{"num-query-groups num-attention-heads kv-channels", "rows of the QKV weight", m.QKVRows()},
		{"num-query-groups kv-channels", "channels of all keys and values", m.NumQueryGroups * m.KeyValues() * m.KVChannels}}
}

const leaveOut = "leave one out"

// boundModel are parts of models whose sums depend on the layout.
func (c *Run) boundModel() []layoutBound {
	m := &c.Model
	return append(c.boundExperts(),
		layoutBound{m.MTP != nil && m.MTP.DetachHeads, "mtp-detach-heads", "--mtp-detach-heads, which has two norms of gradients", leaveOut},
		layoutBound{m.PaddedVocabCounts, "padded-vocab-in-softmax", "--padded-vocab-in-softmax, whose softmax depends on the number of ranks", leaveOut},
	)
}

// boundExperts are parts of mixtures that depend on the tokens of a rank or of a micro-batch, and cuts that
// do not fall between leaves.
func (c *Run) boundExperts() []layoutBound {
	e, n := c.Model.Experts, c.Leaves
	if e == nil {
		return nil
	}
	etp := max(1, c.Layout.Sizes().ExpertTP())
	has := func(kind string) bool {
		i := slices.Index(e.Balancing, kind)
		return i >= 0 && (i >= len(e.AuxLossCoeff) || e.AuxLossCoeff[i] != 0)
	}
	const balancing, bySample = "moe-router-load-balancing-type", "use --moe-router-load-balancing-type seq_aux_loss, which balances each sample"
	return []layoutBound{
		{has(spec.AuxLoss), balancing, "--moe-router-load-balancing-type aux_loss, which balances each micro-batch", bySample},
		{has(spec.GlobalAuxLoss), balancing, "--moe-router-load-balancing-type global_aux_loss, which depends on the micro-batches before", bySample},
		{slices.Contains(e.Balancing, spec.Sinkhorn), balancing, "--moe-router-load-balancing-type sinkhorn, which depends on the tokens of a rank", bySample},
		{slices.Contains(e.Balancing, spec.Quantiles), balancing, "--moe-router-load-balancing-type quantile_balancing, which depends on the tokens of a micro-batch", bySample},
		{e.CapacityFactor > 0, "moe-expert-capacity-factor", "--moe-expert-capacity-factor, which depends on the tokens of a rank", leaveOut},
		{etp > 1 && n%etp != 0, "reduction-leaves expert-tensor-parallel-size", fmt.Sprintf("%d expert-tensor-parallel ranks with --reduction-leaves %d", etp, n), "use a multiple of the ranks"},
		{etp > 1 && e.ProbsOnInput, "moe-apply-probs-on-input expert-tensor-parallel-size", "--moe-apply-probs-on-input under expert tensor parallelism", "use --expert-tensor-parallel-size 1"},
	}
}

// boundLayout are cuts that do not fall between leaves, and exchanges whose sums have an order.
func (c *Run) boundLayout() []layoutBound {
	n, s, l := c.Leaves, c.SequenceLeaves, &c.Layout
	tp, cp, parts := max(1, l.TP), max(1, l.CP), max(1, l.CP)
	if l.SequenceParallel {
		parts *= tp
	}
	if cp > 1 {
		parts = max(parts, 2*cp)
	}
	return []layoutBound{
		{n%tp != 0, "reduction-leaves tensor-model-parallel-size", fmt.Sprintf("%d tensor-parallel ranks with --reduction-leaves %d", tp, n), "use a multiple of the ranks"},
		{n%tp == 0 && n%parts != 0, "reduction-leaves context-parallel-size", fmt.Sprintf("%d parts of a sequence with --reduction-leaves %d", parts, n), fmt.Sprintf("use --reduction-leaves %d", parts)},
		{n%parts == 0 && cp > 1 && s%(2*cp) != 0, "sequence-leaves context-parallel-size", fmt.Sprintf("%d parts of a sequence with --sequence-leaves %d", 2*cp, s),
			fmt.Sprintf("give --sequence-leaves %d to all runs that are to have the same bits", 2*cp)},
		{cp > 1 && !l.UncutSequences(), "cp-comm-type", "the sums of --cp-comm-type p2p, all_gather and a2a+p2p", "use --cp-comm-type a2a"},
		{l.ZigZagPerDocument && cp > 1, "cp-zigzag-per-document", "--cp-zigzag-per-document", leaveOut},
		{l.MemoryCentricTiling > 0, "memory-centric-tiling", "--memory-centric-tiling", leaveOut},
		{c.sharedGroups(), "mamba-num-groups tensor-model-parallel-size context-parallel-size", "state-space scans whose groups of B and C are on several ranks", "use --mamba-num-groups N, a multiple of these ranks"},
		{l.FastReduce, "fast-reduce", "--fast-reduce", leaveOut},
	}
}

// sharedGroups reports whether tensor-parallel or context-parallel ranks have the same group of B and C, whose
// gradient then is a sum over the heads of each.
func (c *Run) sharedGroups() bool {
	ranks := max(1, c.Layout.TP) * max(1, c.Layout.CP)
	return c.Model.Mamba != nil && c.Model.Mamba.Groups%ranks != 0
}

// boundRun is the rest of a run.
func (c *Run) boundRun() []layoutBound {
	return []layoutBound{
		{c.Optimizer.Matrices() && c.Optimizer.Muon.TPMode == optimizer.MuonBlockwise, "muon-tp-mode", "--muon-tp-mode blockwise", "use --muon-tp-mode duplicated"},
		{c.DecreaseBatchSizeIfNeeded, "decrease-batch-size-if-needed", "--decrease-batch-size-if-needed", leaveOut},
		{c.DataloaderType == "cyclic", "dataloader-type", "--dataloader-type cyclic, whose order of samples depends on the number of ranks", "use --dataloader-type single"},
		{c.OffloadFolder != "" || c.OptimizerCPUOffload, "offload-folder optimizer-cpu-offload", "--offload-folder or --optimizer-cpu-offload", leaveOut},
		{c.Tuning.Data != "", "finetune-data", "--finetune-data", leaveOut},
		{c.Adapter.Given(), "lora-rank", "adapters", leaveOut},
	}
}
