package engine

import (
	"math/bits"

	"monotron/megatron/config"
	"monotron/megatron/optimizer"
	"monotron/mpu"
)

// With --layout-invariant every sum has an order, or none, that does not depend on the layout:
// products are trees of leaves (device.MatmulArgs.Leaves), gradients, losses and norms are exact
// sums on grids (device.GridAddArgs). See docs/invariance.md.

// leaves are those of a micro-batch's tokens.
func (e *Engine) leaves(m *Micro) mpu.Leaves {
	if e.config.Leaves == 0 {
		return mpu.Leaves{}
	}
	c, positions := e.config, len(m.Tokens[0])
	return mpu.Leaves{Batch: int64(len(m.Tokens)), Chunk: int64(positions / c.Leaves), Long: int64(positions / c.SequenceLeaves)}
}

// meanLossBits is lossBits of sums that are means over all tokens.
func (e *Engine) meanLossBits() int64 {
	if e.config.Leaves == 0 {
		return 0
	}
	return 52 - int64(bits.Len64(lossLimit))
}

// addends are what a step adds to a gradient, at most: each depth of multi-token prediction passes
// embedding and head once more, and where depths share a layer that layer.
func addends(c *config.Step) optimizer.Addends {
	passes := 1
	if c.Model.MTP != nil {
		passes += c.Model.MTP.Depths
	}
	heads := c.Model.NumAttentionHeads
	if c.Model.Delta != nil {
		heads = max(heads, c.Model.Delta.ValueHeads)
	}
	if c.Model.Mamba != nil {
		heads = max(heads, c.Model.Mamba.Heads)
	}
	return optimizer.Addends{Leaves: int64(passes * c.LeafSamples * c.Leaves), Tokens: int64(passes * c.LeafSamples * c.SeqLength), Heads: int64(heads), Elements: c.Model.Parameters()}
}

// averaged is of how many parts of this rank's batch the losses of routers are means: of
// micro-batches, with leaves of samples.
func (e *Engine) averaged(micros []*Micro) int {
	if e.config.Leaves == 0 {
		return len(micros)
	}
	return samples(micros)
}

// routerLossLimit is below which a router's own loss of a sample must be for sums of these to be exact.
const routerLossLimit = 4096

// routerLossBits is to how many binary digits these are rounded before they are added; 0: they are not.
func (e *Engine) routerLossBits() int64 {
	if e.config.Leaves == 0 {
		return 0
	}
	return 52 - int64(bits.Len64(uint64(max(1, e.config.LeafSamples))*routerLossLimit))
}

// lossLimit is below which the mean loss of a token must be for sums of losses to be exact.
const lossLimit = 64

// lossBits is to how many binary digits the losses of tokens are rounded before they are added;
// 0: they are not.
func (e *Engine) lossBits() int64 {
	if e.config.Leaves == 0 {
		return 0
	}
	tokens := uint64(max(1, e.config.LeafSamples)) * uint64(e.config.SeqLength)
	return 52 - int64(bits.Len64(tokens*lossLimit))
}
