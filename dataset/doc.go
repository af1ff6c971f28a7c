// Package dataset holds training text as Megatron-LM does: token files that are
// memory-mapped, index arrays that say which tokens make sample k, blends of
// several such datasets, and samplers that say which samples a rank reads. Every
// file and array equals Megatron's byte for byte.
//
// Reading order: format.go and indexed.go (.bin/.idx), builder.go (writing
// them), gpt.go (documents to samples), sample.go (a sample's arrays), blend.go,
// build.go (flags to datasets), sampler.go. random.go has numpy's and torch's
// generators; cache.go, description.go and npy.go the cache files.
//
// What Megatron calls documents in GPTDataset are the sequences of the files.
// Everything on disk is little-endian.
package dataset
