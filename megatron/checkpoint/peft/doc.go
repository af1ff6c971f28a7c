// Package peft reads and writes adapters as the library PEFT keeps them, a folder with
// adapter_config.json and adapter_model.safetensors: LoRA, rsLoRA and DoRA on linear layers.
//
// Reading order: config.go (the settings, and which of a file's are refused), match.go (which
// modules have an adapter, and its rank), source.go (a folder as a checkpoint.Source),
// write.go, merge.go (a checkpoint with its adapter's sums in the weights).
package peft
