// Package sft reads rows of conversations, instructions, texts or preferences from files and makes
// training samples of them: token ids, and which of these the loss learns.
//
// Reading order: sft.go (Config, Load: from a file to documents), files.go and parquet.go (from a file
// to rows of JSON), row.go and older.go (what a row may hold), render.go (a row as ids and learned
// tokens), spans.go (which tokens of a conversation the assistant wrote), pack.go (documents to
// samples), samples.go (a sample's arrays, the order of an epoch). Then preference data:
// preferencerow.go (what a row may hold), preferenceids.go (ids by the rules of a method),
// preference.go (rows that fit, mismatched answers, samples).
//
// The rules for end-of-sequence tokens, truncation, rows without learned tokens and packing are
// those of TRL's SFTTrainer, those for preference data of its DPO, ORPO, CPO and KTO trainers.
package sft
