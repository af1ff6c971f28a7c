// Package tokenizer turns text into token ids and back, with the ids that
// Megatron-LM's tokenizers give: GPT-2's byte-level BPE, the Null tokenizer
// (numbers in, numbers out) and one id a character.
//
// Reading order: tokenizer.go (the interface), config.go (flags to a tokenizer), then one
// file a kind: gpt2.go with gpt2load.go, huggingface.go (over hf/), sentencepiece.go and
// sentencepiecelegacy.go (over sp/), tik.go, char.go, null.go. stream.go decodes ids as they
// come. What the kinds share is in bpe/, trie/ and uni/; train/ makes a new BPE.
package tokenizer
