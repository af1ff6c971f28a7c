// Package hf reads tokenizer.json, the format of Hugging Face's tokenizers, and
// does what it says: added tokens are found, the rest is normalized, cut into
// pieces, each piece turned into ids by a model, and special tokens are put
// around all of them. A file that asks for something else is refused.
//
// Read hf.go, then added.go, normalizer.go, pretoken.go, bpe.go and unigram.go
// in the order in which a text meets them; decoder.go is the way back.
package hf
