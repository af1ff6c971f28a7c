// Package dataset holds training text as Megatron-LM does: token files that are
// memory-mapped, index arrays that say which tokens make sample k, blends of
// several such datasets, and samplers that say which samples a rank reads. Every
// file and array equals Megatron's byte for byte.
//
// Reading order: format.go and indexed.go (.bin/.idx; mapping.go maps them), builder.go
// (writing them), gpt.go (documents to samples), shuffle.go, sample.go (a sample's arrays),
// blend.go with interleave.go and interleavestretches.go (which dataset gives sample t),
// split.go, build.go (flags to datasets), sampler.go (which samples a rank reads), loader.go
// (micro-batches, ahead of their use). random.go has numpy's and torch's generators;
// cache.go, blendcache.go, npy.go and pyjson.go have the cache files; atomic.go writes files
// complete. Other sources of tokens: mock.go, rawtokens.go (llm.c, nanoGPT), oldindex.go;
// sidecar.go says what a pair was made with.
//
// What Megatron calls documents in GPTDataset are the sequences of the files.
// Everything on disk is little-endian.
package dataset
