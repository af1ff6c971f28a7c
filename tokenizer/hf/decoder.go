package hf

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"

	"monotron/tokenizer/bpe"
	"monotron/tokenizer/uni"
)

// decoder turns tokens into text, step by step; each alone is what it does to
// the bytes of one token without its neighbours.
type decoder struct {
	joined func(tokens []string) ([]string, error)
	alone  func(token []byte) []byte
}

// decoder reads the part of that name; joined is nil where it is null.
func (r *reader) decoder(raw json.RawMessage) (decoder, error) {
	// Without a decoder tokens are joined by a blank.
	if isNull(raw) {
		return decoder{alone: func(b []byte) []byte { return append(b, ' ') }}, nil
	}
	// The parameters of all kinds.
	var d struct {
		Type           string
		Decoders       []json.RawMessage
		Pattern        pattern
		Content        string
		Start, Stop    int
		Replacement    string
		PrependScheme  string `json:"prepend_scheme"`
		AddPrefixSpace *bool  `json:"add_prefix_space"`
		Suffix         *string
	}
	if err := r.part("decoder", raw, &d); err != nil {
		return decoder{}, err
	}
	// Each kind has a form for all tokens at once, and one for a token by itself, which streaming uses.
	switch d.Type {
	case "Sequence":
		return r.decoders(d.Decoders)
	case "ByteLevel":
		return decoder{byteLevelFull, unspell}, nil
	case "ByteFallback":
		return decoder{byteFallback, byteToken}, nil
	case "Fuse":
		return decoder{func(t []string) ([]string, error) { return []string{strings.Join(t, "")}, nil }, same}, nil
	case "Strip":
		return decoder{eachToken(func(s string) (string, error) { return stripRunes(s, d.Content, d.Start, d.Stop), nil }), same}, nil
	case "Replace":
		return r.replacing(d.Pattern, d.Content)
	case "Metaspace":
		never := d.PrependScheme == "never" || d.AddPrefixSpace != nil && !*d.AddPrefixSpace
		return decoder{metaspaceFull(d.Replacement, never), func(b []byte) []byte {
			return bytes.ReplaceAll(b, []byte(d.Replacement), []byte(" "))
		}}, nil
	case "BPEDecoder":
		suffix := "</w>"
		if d.Suffix != nil {
			suffix = *d.Suffix
		}
		return bpeDecoder(suffix), nil
	}
	return decoder{}, r.unsupported("decoder", d.Type)
}

// replacing puts content wherever the pattern is found in a token.
func (r *reader) replacing(find pattern, content string) (decoder, error) {
	replace, err := r.replace(find, content)
	if err != nil {
		return decoder{}, err
	}
	to := func(s string) (string, error) {
		out, err := replace(aligned{text: s})
		return out.text, err
	}
	return decoder{eachToken(to), func(b []byte) []byte {
		s, err := to(string(b))
		if err != nil {
			return b
		}
		return []byte(s)
	}}, nil
}

// bpeDecoder ends words where a token has the suffix.
func bpeDecoder(suffix string) decoder {
	return decoder{func(t []string) ([]string, error) {
		for i := range t {
			by := " "
			if i == len(t)-1 {
				by = ""
			}
			t[i] = strings.ReplaceAll(t[i], suffix, by)
		}
		return t, nil
	}, func(b []byte) []byte { return bytes.ReplaceAll(b, []byte(suffix), []byte(" ")) }}
}

func same(b []byte) []byte { return b }

func (r *reader) decoders(parts []json.RawMessage) (decoder, error) {
	if err := r.deeper(); err != nil {
		return decoder{}, err
	}
	defer r.back()
	var list []decoder
	for _, raw := range parts {
		d, err := r.decoder(raw)
		if err != nil {
			return decoder{}, err
		}
		list = append(list, d)
	}
	return decoder{func(t []string) (_ []string, err error) {
		for _, d := range list {
			if t, err = d.joined(t); err != nil {
				return nil, err
			}
		}
		return t, nil
	}, func(b []byte) []byte {
		for _, d := range list {
			b = d.alone(b)
		}
		return b
	}}, nil
}

func eachToken(f func(string) (string, error)) func([]string) ([]string, error) {
	return func(t []string) ([]string, error) {
		for i := range t {
			var err error
			if t[i], err = f(t[i]); err != nil {
				return nil, err
			}
		}
		return t, nil
	}
}

// byteLevelFull joins the bytes of all tokens; a token that is not in the
// byte spelling stands for itself.
func byteLevelFull(tokens []string) ([]string, error) {
	var b []byte
	for _, t := range tokens {
		b = append(b, unspell([]byte(t))...)
	}
	return []string{uni.Lossy(b)}, nil
}

func unspell(token []byte) []byte {
	if b := bpe.Unspell(string(token)); b != nil {
		return b
	}
	return token
}

func byteToken(token []byte) []byte {
	if b, ok := byteValue(string(token)); ok {
		return []byte{b}
	}
	return token
}

// byteValue is the byte of a token <0x..>.
func byteValue(t string) (byte, bool) {
	if len(t) != 6 || !strings.HasPrefix(t, "<0x") || t[5] != '>' {
		return 0, false
	}
	v, err := strconv.ParseUint(strings.TrimPrefix(t[3:5], "+"), 16, 8)
	return byte(v), err == nil
}

// byteFallback joins runs of byte tokens; a run that is not UTF-8 becomes one
// U+FFFD a byte.
func byteFallback(tokens []string) ([]string, error) {
	var out []string
	var run []byte
	flush := func() {
		if utf8.Valid(run) {
			if len(run) > 0 {
				out = append(out, string(run))
			}
		} else {
			out = append(out, strings.Repeat("\uFFFD", len(run)))
		}
		run = run[:0]
	}
	for _, t := range tokens {
		if b, ok := byteValue(t); ok {
			run = append(run, b)
			continue
		}
		flush()
		out = append(out, t)
	}
	flush()
	return out, nil
}

// stripRunes drops up to start of the character at the front and up to stop of
// it at the end.
func stripRunes(s, content string, start, stop int) string {
	if content == "" {
		return s
	}
	for i := 0; i < start && strings.HasPrefix(s, content); i++ {
		s = s[len(content):]
	}
	for i := 0; i < stop && strings.HasSuffix(s, content); i++ {
		s = s[:len(s)-len(content)]
	}
	return s
}

// metaspaceFull turns the replacement back into blanks; the first token loses
// every one of them.
func metaspaceFull(replacement string, never bool) func([]string) ([]string, error) {
	return func(t []string) ([]string, error) {
		for i := range t {
			by := " "
			if i == 0 && !never {
				by = ""
			}
			t[i] = strings.ReplaceAll(t[i], replacement, by)
		}
		return t, nil
	}
}
