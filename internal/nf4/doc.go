// Package nf4 quantises weights to the 4-bit NormalFloat of QLoRA (Dettmers et al., arXiv
// 2305.14314) and back, in the bytes of bitsandbytes: blocks of 64 elements of the flat tensor,
// each with its largest magnitude, and a code of 16 for each element; with double quantisation
// these magnitudes are bytes as well, in blocks of 256.
//
// Read in this order:
//
//	nf4.go      the codes of weights
//	dynamic.go  8-bit codes of magnitudes and of an optimizer's moments
//	state.go    tensors and JSON of a quantised weight in a file
//	packed.go   memory that keeps weights as codes, with scales.go
package nf4
