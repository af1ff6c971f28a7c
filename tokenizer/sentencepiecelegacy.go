package tokenizer

import (
	"strings"

	"monotron/internal/exitcode"
)

// legacyPieces is a SentencePiece model with tokens of its wrapper's own, as
// Megatron has it under --tokenizer-sentencepiece-legacy: tokens that the model
// does not know get ids behind its last one, and all of them are cut out of a text
// before the model sees the rest.
type legacyPieces struct {
	*sentencePiece
	tokens []string // as given, each once
	ids    map[string]int32
	text   map[int32]string
	blank  int32 // id of the piece that stands for a blank
	size   int
}

func newLegacy(t *sentencePiece, tokens []string) (*legacyPieces, error) {
	l := &legacyPieces{sentencePiece: t, ids: map[string]int32{}, text: map[int32]string{}, size: t.Size()}
	l.blank, _ = t.ID("\u2581")
	for _, token := range tokens {
		if token == "" {
			return nil, exitcode.Errorf(exitcode.Usage, "--tokenizer-special-tokens has an empty token")
		}
		id, known := t.ID(token)
		if _, twice := l.ids[token]; twice {
			continue
		}
		if !known {
			id = int32(l.size)
			l.size++
		}
		l.tokens, l.ids[token], l.text[id] = append(l.tokens, token), id, token
	}
	return l, nil
}

func (l *legacyPieces) VocabSize() int { return l.size }

func (l *legacyPieces) Encode(text string) ([]int32, error) {
	return l.Append(make([]int32, 0, len(text)/3+2), text)
}

// Append cuts at the token that comes first, of several at one position the one given
// first. A blank that the model puts before what follows a token is dropped, but not
// before what follows the last one: so Megatron.
func (l *legacyPieces) Append(dst []int32, text string) ([]int32, error) {
	if at := invalidAt(text); at >= 0 {
		return dst, notUTF8(at)
	}
	afterToken := false
	for {
		at, token := l.first(text)
		if at < 0 {
			return l.Model.Append(dst, text), nil
		}
		start := len(dst)
		dst = l.Model.Append(dst, text[:at])
		if afterToken && len(dst) > start && dst[start] == l.blank {
			dst = append(dst[:start], dst[start+1:]...)
		}
		dst, afterToken = append(dst, l.ids[token]), true
		text = text[at+len(token):]
	}
}

// first is where the first token stands in text, -1 for nowhere.
func (l *legacyPieces) first(text string) (at int, token string) {
	at = -1
	for _, t := range l.tokens {
		if i := strings.Index(text, t); i >= 0 && (at < 0 || i < at) {
			at, token = i, t
		}
	}
	return at, token
}

// Decode puts blanks around the tokens, and none at the ends.
func (l *legacyPieces) Decode(ids []int32) string {
	var b strings.Builder
	last := 0
	for i, id := range ids {
		if token, ok := l.text[id]; ok {
			b.WriteString(l.Model.Decode(ids[last:i]) + " " + token + " ")
			last = i + 1
		}
	}
	b.WriteString(l.Model.Decode(ids[last:]))
	return strings.TrimSpace(b.String())
}

func (l *legacyPieces) AppendBytes(dst []byte, id int32) []byte {
	if token, ok := l.text[id]; ok {
		return append(dst, token...)
	}
	return l.Model.AppendBytes(dst, id)
}

// Description lists the options Megatron passes.
func (l *legacyPieces) Description() Description {
	tokens := "None"
	if len(l.tokens) > 0 {
		tokens = pythonList(l.tokens)
	}
	d := l.sentencePiece.Description()
	d.Options[2].Value, d.Options[3].Value = "True", tokens
	return d
}
