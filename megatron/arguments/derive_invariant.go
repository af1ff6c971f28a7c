package arguments

import (
	"fmt"
	"math/bits"

	"monotron/megatron/arguments/table"
	"monotron/megatron/config"
)

// deriveInvariant completes --layout-invariant, and refuses what it does not have.
func (p *parser) deriveInvariant() {
	if !p.Raw.LayoutInvariant {
		for _, flag := range []string{"reduction-leaves", "sequence-leaves"} {
			if p.given(flag) && p.values[flag].direct {
				p.notice("--%s has no effect without --layout-invariant", flag)
			}
		}
		return
	}
	p.Leaves, p.SequenceLeaves = p.Raw.Leaves, p.Raw.SequenceLeaves
	if p.SequenceLeaves == 0 {
		p.SequenceLeaves = config.SequenceLeaves(p.Leaves, p.SeqLength)
	}
	p.CalculatePerTokenLoss = true
	p.checkLeaves()
	for _, b := range p.LayoutBounds() {
		p.clash("layout-invariant "+b.Flags, "--layout-invariant cannot be combined with %s; %s", b.What, b.Instead)
	}
	if p.Raw.EnableGraph || p.Raw.GraphImpl != table.GraphsOff {
		p.clash("layout-invariant cuda-graph-impl", "--layout-invariant cannot be combined with CUDA graphs; leave one out")
	}
}

// checkLeaves checks that leaves can be cut out of every axis that a layout cuts.
func (p *parser) checkLeaves() {
	n := p.Leaves
	if n&(n-1) != 0 {
		p.clash("reduction-leaves", "--reduction-leaves %d is not a power of two; use %d", n, 1<<bits.Len(uint(n-1)))
		return
	}
	if s := p.SequenceLeaves; s > n || s&(s-1) != 0 {
		p.clash("sequence-leaves reduction-leaves", "--sequence-leaves %d is not a power of two up to --reduction-leaves %d; use %d", s, n, min(n, 1<<(bits.Len(uint(s))-1)))
	}
	for _, a := range p.LeafAxes() {
		if a.Size%n != 0 {
			p.clash("reduction-leaves "+a.Flags, "--reduction-leaves %d does not divide the %d %s: use %s", n, a.Size, a.What, powersBelow(a.Size, n))
		}
	}
}

// powersBelow names the largest power of two up to most that divides n.
func powersBelow(n, most int) string {
	for ; most > 1 && n%most != 0; most /= 2 {
	}
	return fmt.Sprint(most)
}
