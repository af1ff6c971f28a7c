package tokenizer

import (
	"strconv"
	"strings"
	"unicode"

	"monotron/fault"
)

// Null reads text that already consists of ids: decimal numbers with single
// spaces between them, each in the syntax of Python's int().
type Null struct {
	vocab  int
	eod    int
	eodSet bool // --null-tokenizer-eod-id was given
}

// NewNull makes a Null tokenizer of vocab ids; eod < 0 takes the last id.
func NewNull(vocab, eod int) (*Null, error) {
	if vocab < 1 {
		return nil, fault.Errorf(fault.Usage, "NullTokenizer needs --vocab-size (a positive number), found %d", vocab)
	}
	n := &Null{vocab: vocab, eod: eod, eodSet: eod >= 0}
	if !n.eodSet {
		n.eod = vocab - 1
	}
	if n.eod >= vocab {
		return nil, fault.Errorf(fault.Usage, "--null-tokenizer-eod-id %d is outside the vocabulary of %d ids", eod, vocab)
	}
	return n, nil
}

func (n *Null) Name() string           { return "NullTokenizer" }
func (n *Null) VocabSize() int         { return n.vocab }
func (n *Null) EOD() int               { return n.eod }
func (n *Null) Pad() (id int, ok bool) { return -1, true }

func (n *Null) Description() Description {
	d := Description{Options: []Option{{"vocab_size", strconv.Itoa(n.vocab)}}}
	if n.eodSet {
		d.Options = append(d.Options, Option{"eod_id", strconv.Itoa(n.eod)})
	}
	d.Options = append(d.Options, Option{"pad_id", "-1"})
	return d
}

func (n *Null) Encode(text string) ([]int32, error) { return n.Append(nil, text) }

func (n *Null) Append(dst []int32, text string) ([]int32, error) {
	start := len(dst)
	for place := 0; ; place++ {
		word, rest, more := strings.Cut(text, " ")
		id, ok := pythonInt(word)
		if !ok || id < 0 {
			return dst[:start], fault.Errorf(fault.BadData, "word %d, %.40q, is not an id: the NullTokenizer takes numbers from 0 to 2147483647 with single spaces between", place+1, word)
		}
		dst = append(dst, id)
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

// pythonInt reads a number as int(word) does: white space around it, a sign,
// single underscores between digits, decimal digits of any script. Negative
// values and those beyond int32 are reported as not ok.
func pythonInt(word string) (int32, bool) {
	word = strings.TrimFunc(word, pythonSpace)
	negative := strings.HasPrefix(word, "-")
	if negative || strings.HasPrefix(word, "+") {
		word = word[1:]
	}
	value, afterDigit := int64(0), false
	for _, r := range word {
		if r == '_' {
			if !afterDigit {
				return 0, false
			}
			afterDigit = false
			continue
		}
		d, ok := digitValue(r)
		if value = value*10 + int64(d); !ok || value > 1<<31-1 {
			return 0, false
		}
		afterDigit = true
	}
	return int32(value), afterDigit && (!negative || value == 0)
}

// pythonSpace is str.isspace, which has four control characters more than
// Unicode's White_Space.
func pythonSpace(r rune) bool {
	return unicode.IsSpace(r) || (r >= 0x1c && r <= 0x1f)
}

// digitValue is the value of a decimal digit of any script: Unicode keeps each
// script's ten digits together, in order.
func digitValue(r rune) (int, bool) {
	if r < 0x80 {
		return int(r - '0'), r >= '0' && r <= '9'
	}
	for _, t := range unicode.Nd.R16 {
		if rune(t.Lo) <= r && r <= rune(t.Hi) {
			return int(r-rune(t.Lo)) % 10, true
		}
	}
	for _, t := range unicode.Nd.R32 {
		if rune(t.Lo) <= r && r <= rune(t.Hi) {
			return int(r-rune(t.Lo)) % 10, true
		}
	}
	return 0, false
}
