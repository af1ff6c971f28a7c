package arguments

import (
	"fmt"
	"math/bits"
	"strings"

	"monotron/megatron/arguments/table"
	"monotron/megatron/optimizer"
)

// deriveInvariant completes --layout-invariant, and refuses what it does not have.
func (p *parser) deriveInvariant() {
	if !p.Raw.LayoutInvariant {
		if p.given("reduction-leaves") && p.values["reduction-leaves"].direct {
			p.notice("--reduction-leaves has no effect without --layout-invariant")
		}
		return
	}
	p.Leaves, p.LeafSamples = p.Raw.Leaves, p.GlobalBatchSize
	p.CalculatePerTokenLoss = true
	p.checkLeaves()
	for _, r := range p.variant() {
		if r.is {
			p.clash("layout-invariant "+r.flags, "--layout-invariant does not have %s yet; %s", r.what, r.instead)
		}
	}
}

// checkLeaves checks that leaves can be cut out of every axis that a layout cuts.
func (p *parser) checkLeaves() {
	n, l, m := p.Leaves, &p.Layout, &p.Model
	if n&(n-1) != 0 {
		p.clash("reduction-leaves", "--reduction-leaves %d is not a power of two; use %d", n, 1<<bits.Len(uint(n-1)))
		return
	}
	axes := []struct {
		flags, what string
		size        int
	}{
		{"seq-length", "positions of a sample", p.SeqLength},
		{"num-attention-heads kv-channels", "channels of all heads", m.NumAttentionHeads * m.KVChannels},
		{"num-query-groups num-attention-heads kv-channels", "rows of the QKV weight", m.QKVRows()},
		{"ffn-hidden-size", "channels of the MLP", m.FFNHiddenSize},
	}
	for _, a := range axes {
		if a.size%n != 0 {
			p.clash("reduction-leaves "+a.flags, "--reduction-leaves %d does not divide the %d %s: use %s", n, a.size, a.what, powersBelow(a.size, n))
		}
	}
	cuts := l.CP * l.TP
	if !l.SequenceParallel {
		cuts = l.CP
	}
	switch {
	case n%max(1, l.TP) != 0:
		p.clash("reduction-leaves tensor-model-parallel-size", "--reduction-leaves %d must be a multiple of --tensor-model-parallel-size %d", n, l.TP)
	case l.CP > 1 && n%(2*l.CP) != 0:
		p.clash("reduction-leaves context-parallel-size", "--reduction-leaves %d must be a multiple of twice --context-parallel-size %d: use %d", n, l.CP, 2*l.CP)
	case n%max(1, cuts) != 0:
		p.clash("reduction-leaves tensor-model-parallel-size context-parallel-size", "--reduction-leaves %d must be a multiple of the %d parts into which context and sequence parallelism cut a sample: use %d", n, cuts, cuts)
	}
}

// powersBelow names the largest power of two up to most that divides n.
func powersBelow(n, most int) string {
	for ; most > 1 && n%most != 0; most /= 2 {
	}
	return fmt.Sprint(most)
}

// layoutBound is a part of a run that has no order of its own yet.
type layoutBound struct {
	is      bool
	flags   string
	what    string // that is not there
	instead string
}

// variant are parts of a run whose sums still depend on the layout.
func (p *parser) variant() []layoutBound {
	m, l, leave := &p.Model, &p.Layout, "leave one of them out"
	parts := []string{}
	for _, part := range []struct {
		is   bool
		name string
	}{{m.Latent != nil, "multi-latent attention"}, {m.Delta != nil, "gated delta nets"}, {m.MTP != nil, "multi-token prediction"}, {m.QKNorm || m.QKL2Norm, "norms of queries and keys"},
		{m.Sinks, "attention sinks"}, {m.OutputGate, "output gates"}, {m.Experts != nil, "mixtures of experts"}} {
		if part.is {
			parts = append(parts, part.name)
		}
	}
	ring := l.CP > 1 && !l.UncutSequences()
	return []layoutBound{
		{len(parts) > 0, "num-layers", strings.Join(parts, ", "), "use a model without"},
		{ring, "cp-comm-type", "the sums of --cp-comm-type p2p, all_gather and a2a+p2p", "use --cp-comm-type a2a"},
		{l.ZigZagPerDocument && l.CP > 1, "cp-zigzag-per-document", "leaves of documents", leave},
		{m.NumQueryGroups < l.TP, "num-query-groups tensor-model-parallel-size", "query groups that ranks share", fmt.Sprintf("use --tensor-model-parallel-size %d or less", m.NumQueryGroups)},
		{p.Optimizer.Kind == optimizer.Muon, "optimizer", "Muon's updates", "use --optimizer adam, sgd or lion"},
		{p.OffloadFolder != "" || p.OptimizerCPUOffload, "offload-folder optimizer-cpu-offload", "gradients and states outside of the device's memory", leave},
		{l.MemoryCentricTiling > 0, "memory-centric-tiling", "weights in tiles", leave},
		{l.FastReduce, "fast-reduce", "Gloo's own sums", leave},
		{p.Device == "cuda", "device", "products of CUDA", "use --device cpu"},
		{p.Raw.EnableGraph || p.Raw.GraphImpl != table.GraphsOff, "cuda-graph-impl", "CUDA graphs", leave},
		{p.Tuning.Data != "", "finetune-data", "rows to tune on", leave},
		{p.Adapter.Given(), "lora-rank", "adapters", leave},
		{m.PaddedVocabCounts, "padded-vocab-in-softmax", "a softmax over padding, whose size depends on the ranks", leave},
	}
}
