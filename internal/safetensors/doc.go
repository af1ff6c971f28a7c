// Package safetensors reads and writes Hugging Face's safetensors files: eight
// bytes of length N, N bytes of JSON that give each tensor's position, then the data,
// little-endian and row-major, tiling the rest of the file without a gap.
//
// A file is hostile until its header has passed every check of parse: nothing
// is allocated by a size that the file merely claims. Data is read by ReadAt,
// so a file that shrinks under a reader gives an error and no fault.
//
// Read dtype.go (sizes and values), header.go (the checks), file.go, folder.go
// (model.safetensors.index.json), writer.go.
package safetensors
