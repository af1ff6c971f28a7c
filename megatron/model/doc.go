// Package model is the GPT of Megatron as pairs of forward and backward.
//
// Reading order: pass.go (what one micro-batch shares), parallel.go (how ranks share layers), stage.go
// (embedding, layers, head: what a stage is), run.go (its forward and backward), layer.go, half.go (what a
// layer is made of), attention.go, shared.go, latent.go, latentcache.go, delta.go, mlp.go, parallelmlp.go,
// embedding.go, perlayer.go, norm.go, dropout.go; mtp.go is multi-token prediction, which runs with the head;
// recompute.go says which layers forget what, and how what is kept is cut, fuse.go what decides about a run's
// attention calls.
//
// Activations are [s, b, h], flattened to [tokens, h] with row i*b+j the
// position i of sample j; under sequence parallelism, outside the linears and
// attention, a rank has the rows of its stretch of positions, [s/tp*b, h]. Forward
// returns what backward needs; nothing is kept in the layers, so several
// micro-batches can be alive, and recompute is forward again. Backward adds weight
// gradients into Param.Grad and sets input gradients.
//
// After the last backward a gradient is complete but for two sums, which are the
// optimizer's: over Param.SumOver, and over data-parallel ranks. Every dropout mask
// goes by global numbers (position, sample, head or channel), so that no layout
// changes a mask.
package model
