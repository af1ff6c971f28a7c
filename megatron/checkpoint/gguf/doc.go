// Package gguf reads and writes models as GGUF files, the format of llama.cpp, by way of
// Hugging Face's families: a file's metadata becomes a config.json, its tensors take the
// names of package hf, and the other way round. Quantised tensors are read as the f32
// values that ggml gives; F32, F16, BF16, Q8_0 and MXFP4 as read are written, tensor for tensor as
// llama.cpp's own converter does.
//
// A family that llama.cpp knows is one row of the table in family.go, once package hf
// knows it. What a file says and the row does not explain is refused.
//
// Reading order: family.go (the table), tensors.go (which of Hugging Face's tensors make
// one of GGUF's), config.go (metadata to config.json), source.go (reading),
// metadata.go and write.go (writing), rope.go (Llama 3's scaling, which is a tensor), yarn.go,
// parts of families (latent.go, delta.go, gemma4.go, scans.go, further.go),
// modelfile.go with template.go (what Ollama needs in addition).
package gguf
