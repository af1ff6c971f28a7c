// Package table is every flag of pretrain_gpt as a row: its name, what values it
// takes, from where to where, and what this program does with it. It reads
// nothing and knows no Config but by the names of its fields; package arguments
// does the rest.
//
// Reading order: flag.go (what a row says), number.go (from where to where),
// family.go (many names with one reason), rows.go (all rows, and how one is
// found), then the rows by subject: model.go, experts.go, layout.go,
// distributed.go, training.go, optimizer.go, checkpoint.go, data.go, logging.go,
// own.go (this program's own), deepspeed.go (Megatron-DeepSpeed's), and
// outside.go (complete parts of Megatron-LM that are not here).
//
// A flag that this program gets is one row changed: from refused, or out of its
// family or allNotYet, to works.
package table
