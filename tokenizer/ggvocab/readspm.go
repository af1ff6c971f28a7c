package ggvocab

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"monotron/internal/gguf"
)

// blank is SentencePiece's sign of a space.
const blank = "\u2581"

// longestPiece bounds the bytes of a piece that merges are sought for: longer ones would
// cost their square.
const longestPiece = 1 << 10

// sentencePiece is the tokenizer.json of a model llama: a BPE whose merges follow from the
// pieces' scores, as transformers makes it of a SentencePiece model.
// Files of the model gemma4 have the merges.
func (r *reading) sentencePiece(model string) map[string]any {
	scores, _ := value(r, "scores", gguf.Value.Floats)
	if model != Gemma4 && len(scores) != len(r.tokens) {
		r.fail("%sscores has %d entries, but the vocabulary has %d tokens", prefix, len(scores), len(r.tokens))
		return nil
	}
	// Blanks become U+2581 and back, bytes stand for what is unknown.
	normalizers := []any{map[string]any{"type": "Replace", "pattern": map[string]any{"String": " "}, "content": blank}}
	decoders := []any{map[string]any{"type": "Replace", "pattern": map[string]any{"String": blank}, "content": " "},
		map[string]any{"type": "ByteFallback"}, map[string]any{"type": "Fuse"}}
	if r.truth("add_space_prefix", model != Gemma4) {
		normalizers = append([]any{map[string]any{"type": "Prepend", "prepend": blank}}, normalizers...)
		decoders = append(decoders, map[string]any{"type": "Strip", "content": " ", "start": 1, "stop": 0})
	}
	// The unknown token by its id, kind or name.
	var unk any
	if id := r.id("unknown_token_id"); id >= 0 {
		unk = r.tokens[id]
	} else if id := slices.Index(r.kinds, unknown); id >= 0 {
		unk = r.tokens[id]
	} else if id, ok := r.ids["<unk>"]; ok {
		unk = r.tokens[id]
	}
	var merges []string
	if model == Gemma4 {
		merges, _ = value(r, "merges", gguf.Value.Strings)
	} else {
		merges = r.merges(scores)
	}
	return map[string]any{
		"normalizer": map[string]any{"type": "Sequence", "normalizers": normalizers}, "pre_tokenizer": nil,
		"decoder": map[string]any{"type": "Sequence", "decoders": decoders}, "post_processor": r.around(true),
		"model": map[string]any{"type": "BPE", "dropout": nil, "unk_token": unk, "fuse_unk": true, "byte_fallback": slices.Contains(r.kinds, byteToken), "ignore_merges": false,
			"vocab": r.vocabulary(), "merges": merges},
	}
}

// merge makes a piece out of two.
type merge struct {
	left, right string
	score       float64
	ids         [2]int
}

// merges are all pairs of pieces that make a piece, by the score of the piece they make.
func (r *reading) merges(scores []float64) []string {
	var list []merge
	// joins: pieces that merging may make.
	joins := func(id int) bool {
		k := r.kind(id)
		return k == normal || k == userDefined || k == unused
	}
	for id, token := range r.tokens {
		if r.kind(id) != normal || r.ids[token] != id || len(token) > longestPiece {
			continue
		}
		// Every split of a piece into two pieces is a merge.
		for at := range token {
			if at == 0 {
				continue
			}
			left, okL := r.ids[token[:at]]
			right, okR := r.ids[token[at:]]
			if okL && okR && joins(left) && joins(right) {
				list = append(list, merge{token[:at], token[at:], scores[id], [2]int{left, right}})
			}
		}
	}
	// The best score first, as SentencePiece merges; of equals the longer left part, then the lower id.
	slices.SortStableFunc(list, func(a, b merge) int {
		if c := cmp.Compare(b.score, a.score); c != 0 {
			return c
		}
		return cmp.Or(-cmp.Compare(utf8.RuneCountInString(a.left), utf8.RuneCountInString(b.left)), cmp.Compare(a.ids[0], b.ids[0]))
	})
	lines := make([]string, 0, len(list))
	for _, m := range list {
		if !strings.Contains(m.left+m.right, " ") { // a piece has blanks instead
			lines = append(lines, m.left+" "+m.right)
		}
	}
	return lines
}
