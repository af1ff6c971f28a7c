// Package bpe is byte-pair encoding over bytes: text is cut into pieces by a
// pattern, and the bytes of each piece are joined, lowest rank first.
//
// Read model.go, then encoder.go (pieces to ids, with what was seen before),
// split.go and gpt2.go (the patterns), merge.go (joining).
package bpe
