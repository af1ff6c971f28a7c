// Package checkpoint is the one view of a checkpoint that all formats share: a
// Source lists global tensors under the names that native checkpoints use and
// reads any box of them; a Writer makes a checkpoint by pulling boxes out of a
// Source. Converting, comparing, inspecting and loading into a run are all made
// of these two, so each format is written once.
//
// Names are a kind's prefix and Megatron-core's name with the global layer
// (and expert) number:
//
//	model.decoder.layers.3.self_attention.linear_qkv.weight   values
//	optimizer.main.<name>        f32 main parameters, where values are bf16 or f16
//	optimizer.exp_avg.<name>     first moments, f32
//	optimizer.exp_avg_sq.<name>  second moments, f32; either as ..codes.<name> and ..absmax.<name> where they have 8 bits
//
// Shapes are those of one rank: QKV rows by query group, gated fc1 as [gate; up],
// the vocabulary without padding, experts one by one
// (..mlp.experts.local_experts.<global>.linear_fc1.weight).
//
// Nothing here trains and nothing here knows a format but by its name; package
// all joins the formats.
//
// Reading order: source.go, tensors.go (what a model must have), read.go,
// parts.go (tensors in pieces), box.go, cast.go, upcycle.go, target.go, folder.go, detect.go.
package checkpoint
