// Package finetune is the command finetune: it tunes a model on a file of rows with the engine of
// pretrain_gpt, and exports the result.
//
// Reading order: finetune.go (the command), line.go (from its flags to pretrain_gpt's), record.go (what its checkpoints
// are trained on), export.go.
package finetune
