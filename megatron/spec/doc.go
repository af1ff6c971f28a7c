// Package spec describes model shapes: what `--num-layers` and its relatives
// say, and what follows from it by formula alone.
//
// Reading order: model.go (a shape, and what must hold), experts.go (mixtures of experts),
// mtp.go (multi-token prediction), delta.go (linear attention), mamba.go (state-space scans), sublayers.go (layers with one sublayer),
// cut.go (sizes that heads can be divided by), presets.go (shapes by name), flops.go (parameters, padded vocabulary, operations),
// rope.go (the angles of rotary embeddings).
package spec
