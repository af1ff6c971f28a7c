package hf

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"monotron/tokenizer/bpe"
)

// model turns a piece into ids.
type model interface {
	append(dst []int32, piece string) ([]int32, error)
}

// bpeModel is byte-pair encoding over characters.
type bpeModel struct {
	vocab        map[string]int32
	chars        map[rune]int32 // the tokens of one character
	merges       *bpe.Merges
	prefix       string // of every character but the first
	suffix       string // of the last character
	unk          int32  // -1: unknown characters are dropped
	fuse         bool   // neighbouring unknown characters are one unk
	fallback     *[256]int32
	ignoreMerges bool // a piece that is a token is not merged
}

func (r *reader) bpe(raw json.RawMessage) (*bpeModel, error) {
	var m struct {
		Dropout      *float64
		UnkToken     *string `json:"unk_token"`
		Prefix       *string `json:"continuing_subword_prefix"`
		Suffix       *string `json:"end_of_word_suffix"`
		FuseUnk      bool    `json:"fuse_unk"`
		ByteFallback bool    `json:"byte_fallback"`
		IgnoreMerges bool    `json:"ignore_merges"`
		Vocab        map[string]int32
		Merges       json.RawMessage
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, r.bad("model: %w", err)
	}
	// Ids must not be drawn by chance.
	if m.Dropout != nil && *m.Dropout != 0 {
		return nil, r.bad("the model has dropout %g, which makes ids random; set dropout to null", *m.Dropout)
	}
	merges, err := r.mergeList(m.Merges)
	if err != nil {
		return nil, err
	}
	// The vocabulary: characters, the unknown token, bytes.
	out := &bpeModel{vocab: m.Vocab, chars: map[rune]int32{}, unk: -1, fuse: m.FuseUnk, ignoreMerges: m.IgnoreMerges}
	if m.Prefix != nil {
		out.prefix = *m.Prefix
	}
	if m.Suffix != nil {
		out.suffix = *m.Suffix
	}
	if m.UnkToken != nil {
		id, ok := m.Vocab[*m.UnkToken]
		if !ok {
			id = unkMissing
		}
		out.unk = id
	}
	if m.ByteFallback {
		out.fallback = byteTokens(m.Vocab)
	}
	for token, id := range m.Vocab {
		if id < 0 || id >= 1<<30 {
			return nil, r.bad("token %.60q has id %d; ids are 0 to %d", token, id, 1<<30-1)
		}
		if c, n := utf8.DecodeRuneInString(token); n == len(token) && n > 0 {
			out.chars[c] = id
		}
	}
	// Merges by the ids of their tokens.
	out.merges = bpe.NewMerges(len(merges))
	for rank, pair := range merges {
		left, okL := m.Vocab[pair[0]]
		right, okR := m.Vocab[pair[1]]
		into, ok := m.Vocab[pair[0]+strings.TrimPrefix(pair[1], out.prefix)]
		if !okL || !okR || !ok || !strings.HasPrefix(pair[1], out.prefix) {
			return nil, r.bad("merge %d, %.60q: a part of it, or the token that it makes, is not in the vocabulary", rank, pair)
		}
		out.merges.Set(left, right, int32(rank), into)
	}
	return out, nil
}

// unkMissing stands for an unk token that the vocabulary does not hold: an
// error only once a character needs it.
const unkMissing int32 = -2

// mergeList reads merges as pairs, or as lines "left right" in older files.
func (r *reader) mergeList(raw json.RawMessage) ([][2]string, error) {
	var pairs [][2]string
	if isNull(raw) {
		return nil, nil
	}
	if json.Unmarshal(raw, &pairs) == nil {
		var exact [][]string
		if err := json.Unmarshal(raw, &exact); err != nil {
			return nil, r.bad("merges: %w", err)
		}
		for i, p := range exact {
			if len(p) != 2 {
				return nil, r.bad("merge %d has %d parts; it must have two", i, len(p))
			}
		}
		return pairs, nil
	}
	var lines []string
	if err := json.Unmarshal(raw, &lines); err != nil {
		return nil, r.bad("merges are neither pairs nor lines: %w", err)
	}
	pairs = pairs[:0] // the first try may have left entries
	for i, line := range lines {
		if strings.HasPrefix(line, "#version") {
			continue
		}
		left, right, ok := strings.Cut(line, " ")
		if !ok || strings.Contains(right, " ") {
			return nil, r.bad("merge %d, %.60q, is not two tokens", i, line)
		}
		pairs = append(pairs, [2]string{left, right})
	}
	return pairs, nil
}

// byteTokens are the ids of <0x00> to <0xFF>; -1 where one is missing.
func byteTokens(vocab map[string]int32) *[256]int32 {
	var out [256]int32
	for b := range out {
		id, ok := vocab[fmt.Sprintf("<0x%02X>", b)]
		if !ok {
			id = -1
		}
		out[b] = id
	}
	return &out
}

// bytesOf adds the byte tokens of s; false where one of them is missing.
func bytesOf(dst []int32, fallback *[256]int32, s string) ([]int32, bool) {
	if fallback == nil {
		return dst, false
	}
	start := len(dst)
	for i := range len(s) {
		id := fallback[s[i]]
		if id < 0 {
			return dst[:start], false
		}
		dst = append(dst, id)
	}
	return dst, true
}

func (m *bpeModel) append(dst []int32, piece string) ([]int32, error) {
	if m.ignoreMerges {
		if id, ok := m.vocab[piece]; ok {
			return append(dst, id), nil
		}
	}
	ids, err := m.symbols(make([]int32, 0, len(piece)), piece)
	if err != nil {
		return dst, err
	}
	parts := make([]bpe.Part, len(ids))
	for i, id := range ids {
		parts[i].ID = id
	}
	return m.merges.Merge(dst, parts), nil
}

// symbols are the ids that merging begins with. An unknown character waits for
// the next known one, as in the original: byte tokens get in front of it.
func (m *bpeModel) symbols(dst []int32, piece string) ([]int32, error) {
	waiting := false
	// A character of the vocabulary, else its bytes, else the unknown token.
	for at, c := range piece {
		n := utf8.RuneLen(c)
		id, ok := m.symbol(piece, at, n, c)
		if ok {
			if waiting {
				dst, waiting = append(dst, m.unk), false
			}
			dst = append(dst, id)
			continue
		}
		// Byte tokens.
		if m.fallback != nil {
			s := piece[at : at+n]
			if m.prefix != "" || m.suffix != "" {
				s = m.spelled(piece, at, n)
			}
			if dst, ok = bytesOf(dst, m.fallback, s); ok {
				continue
			}
		}
		// Unknown: one token for a run of them where they are fused.
		switch {
		case m.unk == unkMissing:
			return dst, fmt.Errorf("the character %q is unknown, and the vocabulary does not have the model's unk_token either", c)
		case m.unk < 0:
		case waiting && !m.fuse:
			dst = append(dst, m.unk)
		default:
			waiting = true
		}
	}
	if waiting {
		dst = append(dst, m.unk)
	}
	return dst, nil
}

func (m *bpeModel) symbol(piece string, at, n int, c rune) (int32, bool) {
	if m.prefix == "" && m.suffix == "" {
		id, ok := m.chars[c]
		return id, ok
	}
	id, ok := m.vocab[m.spelled(piece, at, n)]
	return id, ok
}

func (m *bpeModel) spelled(piece string, at, n int) string {
	s := piece[at : at+n]
	if at > 0 {
		s = m.prefix + s
	}
	if at+n == len(piece) {
		s += m.suffix
	}
	return s
}
