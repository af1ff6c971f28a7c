// Package tokenizer turns text into token ids and back.
package tokenizer

// Config names a tokenizer and its files.
type Config struct {
	Type      string // "": decided from the files given
	VocabFile string
	MergeFile string
	Model     string // SentencePiece file, Hugging Face folder or tiktoken file

	VocabSize     int // for tokenizers without files (NullTokenizer); 0: the tokenizer's own
	VocabExtraIDs int
	Pattern       string // tiktoken: v1 or v2
}
