// Package mpu holds the parallel layers of Megatron: linears cut by column and
// row, the embedding and cross entropy cut by vocabulary, and Param, which knows
// where its numbers lie in the global tensor. Groups are arguments; with groups
// of one rank these are plain layers.
//
// Reading order: param.go (a parameter, its family and how it starts), pieces.go (which
// part of a global tensor lies where, also in a stretch of a ZeRO buffer), initialize.go
// (initial values), positions.go (which rows are here), mappings.go (what enters and leaves
// a tensor-parallel region), hooks.go (how a pass announces the parameters that it uses), linear.go, fp8.go
// (operands of 8 bits), fp8delayed.go (their scales by earlier steps), roundedlinear.go (an uncut layer with them),
// tiles.go (weights that are gathered in parts), packed.go (weights that are unpacked in parts), embedding.go,
// crossentropy.go, context.go (context parallelism); dispatch.go and travel.go (tokens to
// experts and back), experts.go, fp8experts.go; adapter.go (LoRA), kept.go (what backward needs of it), magnitude.go (DoRA);
// leaves.go (sums for --layout-invariant).
//
// Invariants: initial values depend only on the seed, the global name and the global index.
// Code that depends on the layout (checkpoints, norms, sharding) uses a parameter's Pieces and
// Owner. Ranks and the groups of the layers are made in mpu/ranks; mpu/topology lists the kinds
// of groups.
package mpu
