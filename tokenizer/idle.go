package tokenizer

import "slices"

// uses are the flags that each type reads, --tokenizer-type aside.
var uses = map[string][]string{
	"GPT2BPETokenizer":          {"vocab-file", "merge-file"},
	"NullTokenizer":             {"vocab-size", "null-tokenizer-eod-id", "null-tokenizer-pad-id"},
	"CharTokenizer":             {"vocab-file"},
	"HuggingFaceTokenizer":      {"tokenizer-model", "tokenizer-special-tokens", "tokenizer-hf-no-include-special-tokens"},
	"SentencePieceTokenizer":    {"tokenizer-model", "tokenizer-special-tokens", "tokenizer-sentencepiece-legacy"},
	"GPTSentencePieceTokenizer": {"tokenizer-model", "tokenizer-special-tokens", "tokenizer-sentencepiece-legacy"},
	"Llama2Tokenizer":           {"tokenizer-model", "tokenizer-special-tokens", "tokenizer-sentencepiece-legacy"},
	"TikTokenizer":              {"tokenizer-model", "tokenizer-special-tokens", "tiktoken-pattern", "tiktoken-num-special-tokens", "vocab-size"},
}

// Idle lists the flags that c has values of and that its type does not read, in the order of Flags.
func (c Config) Idle() (kind string, list []string) {
	kind = c.kind()
	used, known := uses[kind]
	if !known {
		return kind, nil
	}
	given := map[string]bool{"vocab-file": c.VocabFile != "", "merge-file": c.MergeFile != "", "tokenizer-model": c.Model != "", "tokenizer-special-tokens": len(c.SpecialTokens) > 0,
		"tokenizer-hf-no-include-special-tokens": c.NoSpecial, "tokenizer-sentencepiece-legacy": c.Legacy, "tiktoken-pattern": c.TikPattern != "", "tiktoken-num-special-tokens": c.TikSpecials != nil,
		"vocab-size": c.VocabSize > 0, "null-tokenizer-eod-id": c.NullEOD != nil, "null-tokenizer-pad-id": c.NullPad != nil}
	for _, f := range Flags() {
		if given[f.Name] && !slices.Contains(used, f.Name) {
			list = append(list, f.Name)
		}
	}
	return kind, list
}
