// Package ggvocab translates tokenizers between GGUF's metadata and the files of
// a Hugging Face folder.
//
// A GGUF file holds a byte-level BPE (tokenizer.ggml.model gpt2: tokens, merges and
// the name of a pattern that cuts texts) or a SentencePiece BPE (llama: pieces with
// scores). Both are read as tokenizer.json with tokenizer_config.json; from files
// they are made as llama.cpp's converter makes them, so that llama.cpp gives the
// ids that the files give.
//
// Reading order: pre.go (patterns and their names), read.go with readspm.go,
// write.go with writespm.go, special.go (special ids and chat templates).
package ggvocab
