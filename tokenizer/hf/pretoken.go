package hf

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"monotron/tokenizer/bpe"
	"monotron/tokenizer/uni"
)

// piece is a part of a text on its way to the model; one with a head begins where
// the text begins.
type piece = aligned

// splitter cuts each piece into more of them.
type splitter func([]piece) ([]piece, error)

// cutter adds the parts of a piece.
type cutter func(dst []piece, p piece) ([]piece, error)

// each makes a splitter from a function of a piece.
func each(cut cutter) splitter {
	return func(in []piece) (out []piece, err error) {
		for _, p := range in {
			if out, err = cut(out, p); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
}

// preTokenizer reads the part of that name; nil where it is null.
func (r *reader) preTokenizer(raw json.RawMessage) (splitter, error) {
	if isNull(raw) {
		return nil, nil
	}
	// The parameters of all kinds, with the defaults of the original.
	var p struct {
		Type             string
		Pretokenizers    []json.RawMessage
		AddPrefixSpace   *bool `json:"add_prefix_space"`
		UseRegex         *bool `json:"use_regex"`
		Pattern          pattern
		Behavior         *string
		Invert           bool
		Replacement      string
		PrependScheme    string `json:"prepend_scheme"`
		Split            *bool
		IndividualDigits bool `json:"individual_digits"`
		Delimiter        string
	}
	if err := r.part("pre_tokenizer", raw, &p); err != nil {
		return nil, err
	}
	behavior := "Isolated"
	if p.Behavior != nil {
		behavior = *p.Behavior
	}
	if p.Type == "Sequence" {
		return r.preTokenizers(p.Pretokenizers)
	}
	defer func() { r.splits++ }()
	// Patterns that are known have code of their own; others are translated for Go's regexp.
	switch p.Type {
	case "ByteLevel":
		return byteLevel(p.AddPrefixSpace == nil || *p.AddPrefixSpace, p.UseRegex == nil || *p.UseRegex), nil
	case "Metaspace":
		return r.metaspace(p.Replacement, p.PrependScheme, p.AddPrefixSpace, p.Split == nil || *p.Split)
	case "Split":
		find, err := r.finder(p.Pattern)
		if err != nil {
			return nil, err
		}
		if p.Pattern.Regex != nil {
			if k, ok := bpe.Lookup(*p.Pattern.Regex); ok {
				find = knownPattern(k)
			}
		}
		return r.split(find, behavior, p.Invert)
	// Kinds that split at a class of characters, which are kept, joined or removed.
	case "Digits":
		if p.IndividualDigits {
			return r.split(characters(uni.Numerics()), "Isolated", false)
		}
		return r.split(characters(uni.Numerics()), "Contiguous", false)
	case "Punctuation":
		return r.split(characters(uni.Punctuation()), behavior, false)
	case "Whitespace":
		return each(words), nil
	case "WhitespaceSplit":
		return r.split(characters(uni.Spaces()), "Removed", false)
	case "BertPreTokenizer":
		white, err := r.split(characters(uni.Spaces()), "Removed", false)
		if err != nil {
			return nil, err
		}
		marks, err := r.split(characters(uni.Punctuation()), "Isolated", false)
		return chain([]splitter{white, marks}), err
	case "CharDelimiterSplit":
		return r.split(characters(characterSet(p.Delimiter)), "Removed", false)
	}
	return nil, r.unsupported("pre_tokenizer", p.Type)
}

func characterSet(s string) *uni.Set {
	var set uni.Set
	for _, c := range s {
		set[c>>6] |= 1 << (c & 63)
	}
	return &set
}

func (r *reader) preTokenizers(parts []json.RawMessage) (splitter, error) {
	if err := r.deeper(); err != nil {
		return nil, err
	}
	defer r.back()
	var list []splitter
	for _, raw := range parts {
		s, err := r.preTokenizer(raw)
		if err != nil {
			return nil, err
		}
		if s != nil {
			list = append(list, s)
		}
	}
	return chain(list), nil
}

func chain(list []splitter) splitter {
	return func(p []piece) (_ []piece, err error) {
		for _, s := range list {
			if p, err = s(p); err != nil {
				return nil, err
			}
		}
		return p, nil
	}
}

// byteLevel spells each byte as one printable character.
func byteLevel(prefix, cut bool) splitter {
	find := knownPattern(bpe.GPT2)
	return each(func(dst []piece, p piece) ([]piece, error) {
		if prefix && !strings.HasPrefix(p.text, " ") {
			p = p.prefixed(" ")
		}
		if !cut {
			return append(dst, spelled(p)), nil
		}
		err := find(p.text, func(from, to int) { dst = append(dst, spelled(p.cut(from, to))) })
		return dst, err
	})
}

// spelled is p with each byte as a printable character.
func spelled(p piece) piece {
	return piece{bpe.Spell([]byte(p.text)), len(bpe.Spell([]byte(p.text[:p.head])))}
}

// knownPattern visits the pieces of a pattern that is written out by hand.
func knownPattern(k bpe.Pattern) func(string, func(from, to int)) error {
	cut := bpe.Cutter(k)
	return func(text string, visit func(from, to int)) error {
		for at := 0; at < len(text); {
			end := cut(text, at)
			visit(at, end)
			at = end
		}
		return nil
	}
}

func characters(set *uni.Set) func(string, func(from, to int)) error {
	return func(text string, visit func(from, to int)) error {
		for at, c := range text {
			if set.Has(c) {
				visit(at, at+utf8.RuneLen(c))
			}
		}
		return nil
	}
}

// words are runs of \w and runs of neither \w nor white space; the rest goes.
func words(dst []piece, p piece) ([]piece, error) {
	kind := func(c rune) int {
		switch {
		case uni.Words().Has(c):
			return 1
		case uni.Spaces().Has(c):
			return 0
		}
		return 2
	}
	start, last := 0, 0
	for at, c := range p.text {
		k := kind(c)
		if k != last {
			if last != 0 {
				dst = append(dst, p.cut(start, at))
			}
			start, last = at, k
		}
	}
	if last != 0 {
		dst = append(dst, p.cut(start, len(p.text)))
	}
	return dst, nil
}

// metaspace writes blanks as a visible character and puts one in front. Older
// files say add_prefix_space where newer ones have prepend_scheme.
func (r *reader) metaspace(replacement, scheme string, prefix *bool, cut bool) (splitter, error) {
	if utf8.RuneCountInString(replacement) != 1 {
		return nil, r.bad("Metaspace: the replacement %.20q is not one character", replacement)
	}
	// One scheme out of two fields.
	switch {
	case prefix != nil && !*prefix && scheme != "" && scheme != "never":
		return nil, r.bad("Metaspace: add_prefix_space is false, but prepend_scheme is %q", scheme)
	case prefix != nil && !*prefix:
		scheme = "never"
	case scheme == "":
		scheme = "always"
	case scheme != "always" && scheme != "first" && scheme != "never":
		return nil, r.unsupported("prepend_scheme", scheme)
	}
	r.first = r.first || scheme == "first"
	r.behind = r.behind || scheme == "first" && r.splits > 0
	// Blanks become the character; a piece that does not begin with it gets one.
	join := func(dst []piece, p piece) ([]piece, error) {
		head := strings.ReplaceAll(p.text[:p.head], " ", replacement)
		p = piece{strings.ReplaceAll(p.text, " ", replacement), len(head)}
		if (scheme == "always" || scheme == "first" && p.head > 0) && !strings.HasPrefix(p.text, replacement) {
			p = p.prefixed(replacement)
		}
		return append(dst, p), nil
	}
	if !cut {
		return each(join), nil
	}
	// Then each of them begins a piece.
	find, err := r.finder(pattern{String: &replacement})
	if err != nil {
		return nil, err
	}
	next, err := r.split(find, "MergedWithNext", false)
	return chain([]splitter{each(join), next}), err
}

// span is a stretch of a piece: a match, or what lies between two.
type span struct {
	from, to int
	match    bool
}

// split cuts at the matches of find.
func (r *reader) split(find func(string, func(from, to int)) error, behavior string, invert bool) (splitter, error) {
	arrange, ok := behaviors[behavior]
	if !ok {
		return nil, r.unsupported("behavior", behavior)
	}
	return each(func(dst []piece, p piece) ([]piece, error) {
		var spans []span
		done := 0
		err := find(p.text, func(from, to int) {
			if from > done {
				spans = append(spans, span{done, from, invert})
			}
			spans = append(spans, span{from, to, !invert})
			done = to
		})
		if done < len(p.text) {
			spans = append(spans, span{done, len(p.text), invert})
		}
		for _, s := range arrange(spans) {
			if s.to > s.from {
				dst = append(dst, p.cut(s.from, s.to))
			}
		}
		return dst, err
	}), nil
}

// behaviors say what becomes of matches.
var behaviors = map[string]func([]span) []span{
	"Isolated":           func(s []span) []span { return s },
	"Removed":            removed,
	"Contiguous":         contiguous,
	"MergedWithPrevious": mergedWithPrevious,
	"MergedWithNext":     mergedWithNext,
}

func removed(in []span) []span {
	out := in[:0]
	for _, s := range in {
		if !s.match {
			out = append(out, s)
		}
	}
	return out
}

func contiguous(in []span) []span {
	out := in[:0]
	last := false
	for _, s := range in {
		if s.match == last && len(out) > 0 {
			out[len(out)-1].to = s.to
		} else {
			out = append(out, s)
		}
		last = s.match
	}
	return out
}

func mergedWithPrevious(in []span) []span {
	out := in[:0]
	last := false
	for _, s := range in {
		if s.match && !last && len(out) > 0 {
			out[len(out)-1].to = s.to
		} else {
			out = append(out, s)
		}
		last = s.match
	}
	return out
}

func mergedWithNext(in []span) []span {
	var out []span // from the end
	last := false
	for i := len(in) - 1; i >= 0; i-- {
		s := in[i]
		if s.match && !last && len(out) > 0 {
			out[len(out)-1].from = s.from
		} else {
			out = append(out, s)
		}
		last = s.match
	}
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return out
}
