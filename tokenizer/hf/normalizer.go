package hf

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/rivo/uniseg"

	"monotron/fault"
	"monotron/tokenizer/bpe"
	"monotron/tokenizer/charsmap"
	"monotron/tokenizer/uni"
)

// normalizer changes a text before it is cut.
type normalizer func(string) (string, error)

// readNormalizer reads the part of that name; nil where it is null.
func (r *reader) normalizer(raw json.RawMessage) (normalizer, error) {
	if isNull(raw) {
		return nil, nil
	}
	var n struct {
		Type        string
		Normalizers []json.RawMessage
		StripLeft   bool `json:"strip_left"`
		StripRight  bool `json:"strip_right"`
		Prepend     string
		Pattern     pattern
		Content     string
		Charsmap    string `json:"precompiled_charsmap"`
	}
	if err := r.part("normalizer", raw, &n); err != nil {
		return nil, err
	}
	form := map[string]uni.Form{"NFC": uni.NFC, "NFD": uni.NFD, "NFKC": uni.NFKC, "NFKD": uni.NFKD}
	if f, ok := form[n.Type]; ok {
		return plain(func(s string) string { return uni.Normalize(f, s) }), nil
	}
	switch n.Type {
	case "Sequence":
		return r.normalizers(n.Normalizers)
	case "Lowercase":
		return plain(lowercase), nil
	case "Strip":
		r.stripsLeft = r.stripsLeft || n.StripLeft
		return plain(func(s string) string { return strip(s, n.StripLeft, n.StripRight) }), nil
	case "StripAccents":
		return plain(dropping(uni.Accents())), nil
	case "Nmt":
		return plain(func(s string) string { return strings.Map(nmt, s) }), nil
	case "ByteLevel":
		return plain(func(s string) string { return bpe.Spell([]byte(s)) }), nil
	case "Prepend":
		return plain(func(s string) string {
			if s == "" {
				return s
			}
			return n.Prepend + s
		}), nil
	case "Replace":
		return r.replace(n.Pattern, n.Content)
	case "Precompiled":
		return r.precompiled(n.Charsmap)
	}
	return nil, r.unsupported("normalizer", n.Type)
}

func (r *reader) normalizers(parts []json.RawMessage) (normalizer, error) {
	var chain []normalizer
	if err := r.deeper(); err != nil {
		return nil, err
	}
	defer r.back()
	for _, raw := range parts {
		n, err := r.normalizer(raw)
		if err != nil {
			return nil, err
		}
		chain = append(chain, n)
	}
	return func(s string) (_ string, err error) {
		for _, n := range chain {
			if s, err = n(s); err != nil {
				return s, err
			}
		}
		return s, nil
	}, nil
}

// plain is a normalizer that cannot fail.
func plain(f func(string) string) normalizer {
	return func(s string) (string, error) { return f(s), nil }
}

// lowercase lowers each character on its own: no final sigma.
func lowercase(s string) string {
	lower := uni.Lower()
	var b strings.Builder
	for _, c := range s {
		if low, ok := lower[c]; ok {
			b.WriteString(low)
		} else {
			b.WriteRune(c)
		}
	}
	return b.String()
}

func strip(s string, left, right bool) string {
	white := uni.Spaces().Has
	if left {
		s = strings.TrimLeftFunc(s, white)
	}
	if right {
		s = strings.TrimRightFunc(s, white)
	}
	return s
}

func dropping(set *uni.Set) func(string) string {
	return func(s string) string {
		return strings.Map(func(c rune) rune {
			if set.Has(c) {
				return -1
			}
			return c
		}, s)
	}
}

// nmt drops control characters and makes other white space a blank.
func nmt(c rune) rune {
	switch {
	case c >= 0x1 && c <= 0x8, c == 0xb, c >= 0xe && c <= 0x1f, c == 0x7f, c == 0x8f, c == 0x9f:
		return -1
	case c == '\t', c == '\n', c == '\f', c == '\r', c == 0x1680, c >= 0x200b && c <= 0x200f,
		c == 0x2028, c == 0x2029, c == 0x2581, c == 0xfeff, c == utf8.RuneError:
		return ' '
	}
	return c
}

func (r *reader) replace(p pattern, content string) (normalizer, error) {
	find, err := r.finder(p)
	if err != nil {
		return nil, err
	}
	return func(s string) (string, error) {
		var b strings.Builder
		done := 0
		err := find(s, func(from, to int) {
			b.WriteString(s[done:from])
			b.WriteString(content)
			done = to
		})
		b.WriteString(s[done:])
		return b.String(), err
	}, nil
}

// precompiled is SentencePiece's table of replacements, asked as its Rust twin
// asks it: a whole grapheme of under 6 bytes first, else each character.
func (r *reader) precompiled(encoded string) (normalizer, error) {
	data, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, r.bad("the normalizer's precompiled_charsmap is not base64: %w", err)
	}
	if len(data) == 0 {
		return plain(func(s string) string { return s }), nil
	}
	m, err := charsmap.Parse(data)
	if err != nil {
		return nil, r.bad("the normalizer's precompiled_charsmap: %w", err)
	}
	return plain(func(s string) string {
		var b strings.Builder
		state := -1
		var g string
		for rest := s; rest != ""; {
			g, rest, _, state = uniseg.FirstGraphemeClusterInString(rest, state)
			if len(g) < 6 {
				if to, ok := m.Shortest(g); ok {
					b.WriteString(to)
					continue
				}
			}
			for _, c := range g {
				if to, ok := m.Shortest(string(c)); ok {
					b.WriteString(to)
				} else {
					b.WriteRune(c)
				}
			}
		}
		return b.String()
	}), nil
}

// pattern is {"String": s} or {"Regex": r}.
type pattern struct{ String, Regex *string }

// finder gives what visits the matches of p.
func (r *reader) finder(p pattern) (func(text string, visit func(from, to int)) error, error) {
	switch {
	case p.String != nil && *p.String != "":
		sub := *p.String
		return func(text string, visit func(from, to int)) error {
			for at := 0; ; {
				i := strings.Index(text[at:], sub)
				if i < 0 {
					return nil
				}
				visit(at+i, at+i+len(sub))
				at += i + len(sub)
			}
		}, nil
	case p.Regex != nil:
		e, err := compile(*p.Regex)
		if err != nil {
			return nil, fault.Errorf(fault.BadData, "%s: %w", r.path, err)
		}
		return e.each, nil
	}
	return nil, r.bad("a pattern has neither a String nor a Regex")
}
