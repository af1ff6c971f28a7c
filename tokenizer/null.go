package tokenizer

import (
	"math"
	"strconv"
	"strings"

	"monotron/internal/argv"
	"monotron/internal/exitcode"
)

// Null reads text that already consists of ids: decimal numbers with single
// spaces between them, each in the syntax of Python's int().
type Null struct {
	vocab    int
	eod, pad int
	eodSet   bool // --null-tokenizer-eod-id was given
}

// NoPad is the padding id that no token has.
const NoPad = -1

// NewNull makes a Null tokenizer of vocab ids; eod < 0 takes the last id.
func NewNull(vocab, eod, pad int) (*Null, error) {
	if vocab < 1 {
		return nil, exitcode.Errorf(exitcode.Usage, "NullTokenizer needs a --vocab-size above 0, not %d", vocab)
	}
	n := &Null{vocab: vocab, eod: eod, pad: pad, eodSet: eod >= 0}
	if !n.eodSet {
		n.eod = vocab - 1
	}
	if n.eod >= vocab {
		return nil, exitcode.Errorf(exitcode.Usage, "--null-tokenizer-eod-id %d is outside the vocabulary, whose ids are 0 to %d", eod, vocab-1)
	}
	return n, nil
}

func (n *Null) Name() string           { return "NullTokenizer" }
func (n *Null) VocabSize() int         { return n.vocab }
func (n *Null) EOD() int               { return n.eod }
func (n *Null) Pad() (id int, ok bool) { return n.pad, true }

func (n *Null) Description() Description {
	d := Description{Options: []Option{{"vocab_size", strconv.Itoa(n.vocab)}}}
	if n.eodSet {
		d.Options = append(d.Options, Option{"eod_id", strconv.Itoa(n.eod)})
	}
	d.Options = append(d.Options, Option{"pad_id", strconv.Itoa(n.pad)})
	return d
}

func (n *Null) Encode(text string) ([]int32, error) { return n.Append(nil, text) }

func (n *Null) Append(dst []int32, text string) ([]int32, error) {
	start := len(dst)
	for candidate := 0; ; candidate++ {
		word, rest, more := strings.Cut(text, " ")
		id, ok := argv.Int(word)
		if !ok || id < 0 || id > math.MaxInt32 {
			return dst[:start], exitcode.Errorf(exitcode.BadData, "word %d, %.40q, is not an id; a text for NullTokenizer must consist of numbers from 0 to 2147483647, separated by single spaces", candidate+1, word)
		}
		dst = append(dst, int32(id))
		if !more {
			return dst, nil
		}
		text = rest
	}
}

func (n *Null) Decode(ids []int32) string {
	var b []byte
	for i, id := range ids {
		if i > 0 {
			b = append(b, ' ')
		}
		b = strconv.AppendInt(b, int64(id), 10)
	}
	return string(b)
}

func (n *Null) AppendBytes(dst []byte, id int32) []byte {
	return append(strconv.AppendInt(dst, int64(id), 10), ' ')
}
