// Package model is the GPT of Megatron as pairs of forward and backward.
//
// Reading order: pass.go (what one micro-batch shares), parallel.go (how ranks share layers), stage.go
// (embedding, layers, head: what a stage is), run.go (its forward and backward), layer.go and sublayer.go (a layer
// is two sublayers, each with a norm and a residual branch). Sublayers:
// attention.go with core.go, context.go and ring.go; latent.go and latentcache.go (multi-latent attention);
// shared.go (layers that use the keys and values of others); delta.go (linear attention);
// mamba.go with groupnorm.go (state-space scans); stateblocks.go (what the two keep while they decode); shortconv.go;
// mlp.go and parallelmlp.go; router.go, mixture.go and experts.go (mixtures of experts). Then embedding.go, perlayer.go,
// norm.go, dropout.go; mtp.go (multi-token prediction, which runs with the head); recompute.go (which
// activations are recomputed, and how kept inputs are divided over ranks); fuse.go (whether attention runs in
// the vendor's library).
//
// Activations are [s, b, h], flattened to [tokens, h] with row i*b+j the
// position i of sample j; under sequence parallelism, outside the linears and
// attention, a rank has the rows of its range of positions, [s/tp*b, h]. Forward
// returns what backward needs and keeps nothing in the layers. So several
// micro-batches can be in flight, and to recompute is to call forward again. Backward
// adds weight gradients to Param.Grad and overwrites input gradients.
//
// After the last backward a gradient lacks two sums, which the optimizer makes: over
// the ranks of Param.SumOver, and over data-parallel ranks. A dropout mask depends on
// global numbers only (position, sample, head or channel), so that no layout changes it.
package model
