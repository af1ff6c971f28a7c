package tokenizer

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"unicode/utf8"

	"monotron/internal/exitcode"
)

// Char gives one id a character: the index of the character in a list that
// is usually the sorted set of a text's characters, as in nanoGPT's
// shakespeare_char. It has no EOD and no padding.
type Char struct {
	symbols []rune
	ids     map[rune]int32
	ascii   [128]int32 // id, -1 where there is none
}

// NewChar makes a tokenizer of the given characters, id = index in the list.
func NewChar(symbols []rune) (*Char, error) {
	c := &Char{symbols: symbols, ids: make(map[rune]int32, len(symbols))}
	for i := range c.ascii {
		c.ascii[i] = -1
	}
	for i, r := range symbols {
		if _, twice := c.ids[r]; twice {
			return nil, exitcode.Errorf(exitcode.BadData, "the character vocabulary lists %q twice, the second time as entry %d", r, i)
		}
		c.ids[r] = int32(i)
		if r < 128 {
			c.ascii[r] = int32(i)
		}
	}
	if len(symbols) == 0 {
		return nil, exitcode.Errorf(exitcode.BadData, "the character vocabulary is empty")
	}
	return c, nil
}

// CharFromText makes the vocabulary of texts: their characters in code point order.
func CharFromText(texts ...string) (*Char, error) {
	seen := map[rune]bool{}
	var ascii [utf8.RuneSelf]bool // most characters of most texts, without the map
	for _, text := range texts {
		if at := invalidAt(text); at >= 0 {
			return nil, notUTF8(at)
		}
		for _, r := range text {
			if r < utf8.RuneSelf {
				ascii[r] = true
			} else {
				seen[r] = true
			}
		}
	}
	for r, found := range ascii {
		if found {
			seen[rune(r)] = true
		}
	}
	symbols := make([]rune, 0, len(seen))
	for r := range seen {
		symbols = append(symbols, r)
	}
	slices.Sort(symbols)
	return NewChar(symbols)
}

// LoadChar reads a JSON list of one-character strings.
func LoadChar(path string) (*Char, error) {
	data, err := readFile(path, "--vocab-file")
	if err != nil {
		return nil, err
	}
	var list []string
	if err := exitcode.JSON(path, data, &list); err != nil {
		return nil, exitcode.Errorf(exitcode.BadData, "%w; the vocabulary of a CharTokenizer must be a JSON list of one-character strings", err)
	}
	symbols := make([]rune, len(list))
	for i, s := range list {
		r, n := utf8.DecodeRuneInString(s)
		if n == 0 || n != len(s) {
			return nil, exitcode.Errorf(exitcode.BadData, "%s: entry %d, %.20q, is not one character", path, i, s)
		}
		symbols[i] = r
	}
	c, err := NewChar(symbols)
	if err != nil {
		return nil, exitcode.Errorf(exitcode.BadData, "%s: %w", path, err)
	}
	return c, nil
}

// JSON is the vocabulary as LoadChar reads it.
func (c *Char) JSON() []byte {
	list := make([]string, len(c.symbols))
	for i, r := range c.symbols {
		list[i] = string(r)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(list); err != nil {
		panic("tokenizer: a list of strings did not encode: " + err.Error())
	}
	return b.Bytes()
}

func (c *Char) Name() string           { return "CharTokenizer" }
func (c *Char) VocabSize() int         { return len(c.symbols) }
func (c *Char) EOD() int               { return -1 }
func (c *Char) Pad() (id int, ok bool) { return 0, false }

// Description names the characters themselves by hash, not the file they came from.
func (c *Char) Description() Description {
	sum := sha256.Sum256(c.JSON())
	return Description{Path: c.Name(), Options: []Option{{"symbols_sha256", hex.EncodeToString(sum[:])}}}
}

func (c *Char) Encode(text string) ([]int32, error) {
	return c.Append(make([]int32, 0, len(text)), text)
}

func (c *Char) Append(dst []int32, text string) ([]int32, error) {
	start := len(dst)
	for at := 0; at < len(text); {
		id, n := int32(-1), 1
		if b := text[at]; b < 128 {
			id = c.ascii[b]
		} else {
			var r rune
			if r, n = utf8.DecodeRuneInString(text[at:]); r == utf8.RuneError && n == 1 {
				return dst[:start], notUTF8(at)
			}
			if found, ok := c.ids[r]; ok {
				id = found
			}
		}
		if id < 0 {
			return dst[:start], exitcode.Errorf(exitcode.BadData, "byte %d: the character %q is not in the vocabulary of %d characters", at, text[at:at+n], len(c.symbols))
		}
		dst = append(dst, id)
		at += n
	}
	return dst, nil
}

func (c *Char) Decode(ids []int32) string {
	out := make([]rune, len(ids))
	for i, id := range ids {
		out[i] = utf8.RuneError
		if id >= 0 && int(id) < len(c.symbols) {
			out[i] = c.symbols[id]
		}
	}
	return string(out)
}

func (c *Char) AppendBytes(dst []byte, id int32) []byte {
	if id < 0 || int(id) >= len(c.symbols) {
		return dst
	}
	return utf8.AppendRune(dst, c.symbols[id])
}

// invalidAt is the position of the first byte of text that is not UTF-8, or -1.
func invalidAt(text string) int {
	if utf8.ValidString(text) {
		return -1
	}
	for at := 0; ; {
		r, n := utf8.DecodeRuneInString(text[at:])
		if r == utf8.RuneError && n <= 1 {
			return at
		}
		at += n
	}
}

// Latin1 says how text of the most frequent other encoding becomes UTF-8.
const Latin1 = "if the text is Latin-1, use `iconv -f LATIN1 -t UTF-8` to convert it"

func notUTF8(at int) error {
	return exitcode.Errorf(exitcode.BadData, "byte %d of the text is not UTF-8; %s", at, Latin1)
}

// maxVocab bounds a vocabulary's file, in bytes; the largest published take some ten million.
const maxVocab = 1 << 28

// readFile reads a vocabulary file; flag names where its path came from.
func readFile(path, flag string) ([]byte, error) {
	data, err := exitcode.ReadFile(path, maxVocab)
	if err != nil {
		return nil, exitcode.Errorf(exitcode.CodeOf(err), "%s: %w", flag, err)
	}
	return data, nil
}
