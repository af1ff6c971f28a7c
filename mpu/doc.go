// Package mpu holds the parallel layers of Megatron: linears cut by column and
// row, the embedding and cross entropy cut by vocabulary, and Param, which knows
// where its numbers lie in the global tensor. Groups are arguments; with groups
// of one rank these are plain layers.
//
// Reading order: param.go (a parameter, its family and how it starts), pieces.go (which
// part of a global tensor lies where, also in a stretch of a ZeRO buffer), initialize.go
// (initial values), positions.go (which rows are here), mappings.go (what enters and leaves
// a tensor-parallel region), hooks.go (whom a pass tells what it uses), linear.go, fp8.go (operands of 8 bits), tiles.go
// (weights that come in parts), embedding.go, crossentropy.go;
// dispatch.go and travel.go (tokens to experts and back), experts.go.
//
// What must hold: initial values depend on the seed, the global name and the global index
// alone; whatever must know about layouts goes by pieces and owners. Ranks, and the groups
// that the layers are given, are made in mpu/ranks, of kinds in mpu/topology.
package mpu
