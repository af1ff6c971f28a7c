// Package gguf reads and writes GGUF, the file format of llama.cpp: typed
// key-value metadata followed by tensors, plain or quantised in blocks. It
// knows no model: names and meanings are its callers' concern.
//
// Everything in a file is checked before it is used: counts against the bytes
// that are left, names, types, sizes that overflow, alignment, tensors that
// overlap or reach behind the end. Opening a file costs memory in proportion to
// its metadata, which is at most 128 MB; tensors are read by ranges of elements.
//
// Reading order: types.go (tensor types), metadata.go (values), header.go and
// file.go (reading), decode.go and kquants.go (blocks to float32), encode.go
// (float32 to blocks), write.go.
package gguf
