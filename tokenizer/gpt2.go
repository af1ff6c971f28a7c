package tokenizer

import (
	"bytes"
	"unicode/utf8"
	"unsafe"

	"monotron/tokenizer/bpe"
)

// endOfText is GPT-2's one special token. Found literally in a text it becomes
// its id, as Megatron's tokenizer has it.
const endOfText = "<|endoftext|>"

// GPT2 is the byte-level BPE of GPT-2.
type GPT2 struct {
	spellings  // what each id stands for; nil: an id nobody uses
	bpe        *bpe.Model
	eod        int
	path       string // for Description
	vocabFile  string // as given; "" for the embedded ranks
	mergesFile string
}

func (t *GPT2) Name() string           { return "GPT2BPETokenizer" }
func (t *GPT2) VocabSize() int         { return len(t.spellings) }
func (t *GPT2) EOD() int               { return t.eod }
func (t *GPT2) Pad() (id int, ok bool) { return 0, false }

// Description lists the options Megatron passes for a GPT2BPETokenizer, in its order.
func (t *GPT2) Description() Description {
	return Description{Path: t.path, Options: []Option{
		{"additional_special_tokens", "[]"},
		{"vocab_file", pythonNone(t.vocabFile)},
		{"merges_file", pythonNone(t.mergesFile)},
		{"use_fast", "True"},
		{"trust_remote_code", "False"},
		{"include_special_tokens", "True"},
		{"use_gigatoken", "False"},
	}}
}

func (t *GPT2) Encode(text string) ([]int32, error) {
	return t.Append(make([]int32, 0, len(text)/3+1), text)
}

func (t *GPT2) Append(dst []int32, text string) ([]int32, error) {
	if !utf8.ValidString(text) {
		return dst, notUTF8(invalidAt(text))
	}
	// The encoder only reads these bytes and keeps none of them.
	rest := unsafe.Slice(unsafe.StringData(text), len(text))
	for {
		at := bytes.Index(rest, []byte(endOfText))
		if at < 0 {
			return t.bpe.Append(dst, rest), nil
		}
		dst = append(t.bpe.Append(dst, rest[:at]), int32(t.eod))
		rest = rest[at+len(endOfText):]
	}
}
