package tokenizer

import (
	"monotron/internal/exitcode"
	"monotron/tokenizer/sp"
)

// sentencePiece is Megatron's SentencePieceTokenizer, GPTSentencePieceTokenizer
// and Llama2Tokenizer, one wrapper there too: plain pieces, no BOS, EOD is the
// model's end of sentence.
type sentencePiece struct {
	*sp.Model
	name string
	path string
}

func loadSentencePiece(c Config) (Tokenizer, error) {
	switch {
	case c.Model == "":
		return nil, exitcode.Errorf(exitcode.Usage, "%s needs --tokenizer-model with the path of a SentencePiece .model file", c.Type)
	case len(c.SpecialTokens) > 0 && !c.Legacy:
		return nil, exitcode.Errorf(exitcode.Usage, "%s does not support --tokenizer-special-tokens; give special tokens to SentencePiece when it trains, or add --tokenizer-sentencepiece-legacy", c.Type)
	}
	m, err := sp.Load(c.Model)
	if err != nil {
		return nil, err
	}
	t := &sentencePiece{m, c.Type, c.Model}
	if c.Legacy {
		return orNil(newLegacy(t, c.SpecialTokens))
	}
	return t, nil
}

func (t *sentencePiece) Name() string           { return t.name }
func (t *sentencePiece) VocabSize() int         { return t.Size() }
func (t *sentencePiece) EOD() int               { return t.EOS() }
func (t *sentencePiece) Pad() (id int, ok bool) { return t.Model.Pad(), true }

func (t *sentencePiece) Encode(text string) ([]int32, error) {
	return t.Append(make([]int32, 0, len(text)/3+2), text)
}

func (t *sentencePiece) Append(dst []int32, text string) ([]int32, error) {
	if at := invalidAt(text); at >= 0 {
		return dst, notUTF8(at)
	}
	return t.Model.Append(dst, text), nil
}

// Description lists the options Megatron passes.
func (t *sentencePiece) Description() Description {
	return Description{Path: t.path, Options: []Option{
		{"chat_template", "None"},
		{"ignore_extra_whitespaces", "True"},
		{"legacy", "False"},
		{"special_tokens", "None"},
	}}
}
