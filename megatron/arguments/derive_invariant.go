package arguments

import (
	"fmt"
	"math/bits"

	"monotron/megatron/arguments/table"
)

// deriveInvariant completes --layout-invariant, and refuses what it does not have.
func (p *parser) deriveInvariant() {
	if !p.Raw.LayoutInvariant {
		if p.given("reduction-leaves") && p.values["reduction-leaves"].direct {
			p.notice("--reduction-leaves has no effect without --layout-invariant")
		}
		return
	}
	p.Leaves = p.Raw.Leaves
	p.CalculatePerTokenLoss = true
	p.checkLeaves()
	for _, b := range p.LayoutBounds() {
		p.clash("layout-invariant "+b.Flags, "--layout-invariant does not have %s; %s", b.What, b.Instead)
	}
	if p.Raw.EnableGraph || p.Raw.GraphImpl != table.GraphsOff {
		p.clash("layout-invariant cuda-graph-impl", "--layout-invariant does not have CUDA graphs; leave one of them out")
	}
}

// checkLeaves checks that leaves can be cut out of every axis that a layout cuts.
func (p *parser) checkLeaves() {
	n, m := p.Leaves, &p.Model
	if n&(n-1) != 0 {
		p.clash("reduction-leaves", "--reduction-leaves %d is not a power of two; use %d", n, 1<<bits.Len(uint(n-1)))
		return
	}
	type axis struct {
		flags, what string
		size        int
	}
	axes := []axis{
		{"seq-length", "positions of a sample", p.SeqLength},
		{"num-attention-heads kv-channels", "channels of all heads", m.NumAttentionHeads * m.KVChannels},
		{"num-query-groups num-attention-heads kv-channels", "rows of the QKV weight", m.QKVRows()},
		{"ffn-hidden-size", "channels of the MLP", m.FFNHiddenSize},
	}
	if e := m.Experts; e != nil {
		axes = append(axes, axis{"moe-ffn-hidden-size", "channels of an expert", e.FFNHiddenSize}, axis{"moe-shared-expert-intermediate-size", "channels of the shared expert", e.SharedFFN})
	}
	for _, a := range axes {
		if a.size%n != 0 {
			p.clash("reduction-leaves "+a.flags, "--reduction-leaves %d does not divide the %d %s: use %s", n, a.size, a.what, powersBelow(a.size, n))
		}
	}
}

// powersBelow names the largest power of two up to most that divides n.
func powersBelow(n, most int) string {
	for ; most > 1 && n%most != 0; most /= 2 {
	}
	return fmt.Sprint(most)
}
