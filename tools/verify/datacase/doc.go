// Package datacase runs the dataset and sampler sections of the golden data
// cases: index arrays, cache files, samples and sample orders that Megatron-LM
// made, compared bit for bit with what package dataset makes of the same input.
//
// Reading order: cases.go (cases.json), dataset.go (one case in a folder of its own),
// pair.go, samples.go, sampler.go.
package datacase
