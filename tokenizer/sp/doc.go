// Package sp reads SentencePiece's .model files and does what the library does
// with them: BPE and unigram models, its normalizer, byte fallback.
//
// Read sp.go, then normalize.go, bpe.go and unigram.go; proto.go reads the file.
package sp
