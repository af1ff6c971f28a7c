// Package model is the GPT of Megatron as pairs of forward and backward.
//
// Reading order: pass.go (what one micro-batch shares), stage.go (embedding,
// layers, head: one pipeline stage), layer.go, attention.go, mlp.go,
// embedding.go, norm.go; recompute.go says which layers forget what.
//
// Activations are [s, b, h], flattened to [tokens, h] with row i*b+j the
// position i of sample j. Forward returns what backward needs; nothing is kept in
// the layers, so several micro-batches can be alive, and recompute is forward
// again. Backward adds weight gradients into Param.Grad and sets input gradients.
package model
