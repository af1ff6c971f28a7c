package hf

import (
	"encoding/json"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"monotron/tokenizer/trie"
)

// unigramModel cuts a piece so that the scores of its tokens add up to most.
type unigramModel struct {
	vocab    map[string]int32
	scores   []float64
	trie     *trie.Trie
	unk      int32 // -1: unknown characters are an error
	unkScore float64
	fallback *[256]int32
}

func (r *reader) unigram(raw json.RawMessage) (*unigramModel, []string, error) {
	var m struct {
		UnkID        *int32 `json:"unk_id"`
		Vocab        [][]json.RawMessage
		ByteFallback bool `json:"byte_fallback"`
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, nil, r.bad("model: %w", err)
	}
	out := &unigramModel{vocab: map[string]int32{}, unk: -1, scores: make([]float64, len(m.Vocab))}
	tokens, ids := make([]string, len(m.Vocab)), make([]int32, len(m.Vocab))
	least := math.Inf(1)
	// Ids are indices in the list.
	for i, entry := range m.Vocab {
		ok := len(entry) == 2 && json.Unmarshal(entry[0], &tokens[i]) == nil
		if ok {
			out.scores[i], ok = rustFloat(string(entry[1]))
		}
		if !ok {
			return nil, nil, r.bad("entry %d of the vocabulary must be a token and a score", i)
		}
		ids[i] = int32(i)
		out.vocab[tokens[i]] = int32(i)
		least = min(least, out.scores[i])
	}
	// The unknown token, whose score is below all others.
	if m.UnkID != nil {
		if out.unk = *m.UnkID; out.unk < 0 || int(out.unk) >= len(tokens) {
			return nil, nil, r.bad("unk_id %d is not the id of one of the %d tokens", out.unk, len(tokens))
		}
	}
	out.unkScore = least - 10
	out.trie = trie.New(tokens, ids)
	if m.ByteFallback {
		out.fallback = byteTokens(out.vocab)
	}
	return out, tokens, nil
}

// rustFloat reads a number as serde_json does by default: the digits as one
// integer, then one multiplication or division by a power of ten. The last bit
// can differ from the nearest float, and such bits decide between equal cuts.
func rustFloat(s string) (float64, bool) {
	exact, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0, false
	}
	// All digits as one integer, as many as fit it, and the exponent that belongs to it.
	mantissa, e, _ := strings.Cut(strings.ToLower(strings.TrimPrefix(s, "-")), "e")
	integers, decimals, _ := strings.Cut(mantissa, ".")
	exponent, _ := strconv.Atoi(e)
	digits := uint64(0)
	for i, c := range integers + decimals {
		d := uint64(c - '0')
		if hi, lo := bits.Mul64(digits, 10); hi != 0 || lo > math.MaxUint64-d {
			if i < len(integers) {
				return exact, true
			}
			break
		}
		digits = digits*10 + d
		if i >= len(integers) {
			exponent--
		}
	}
	// A single rounding; outside of its range the nearest float is taken.
	if exponent < -300 || exponent > 300 {
		return exact, true
	}
	f := float64(digits)
	if exponent < 0 {
		f /= math.Pow10(-exponent)
	} else {
		f *= math.Pow10(exponent)
	}
	return math.Copysign(f, exact), true
}

// step is the best way to reach a byte: by token id from byte from.
type step struct {
	score float64
	from  int32
	id    int32
}

func (m *unigramModel) append(dst []int32, piece string) ([]int32, error) {
	best := make([]step, len(piece)+1)
	for i := range best {
		best[i].from = -1
	}
	offer := func(from, to int, id int32, score float64) {
		if s := &best[to]; s.from < 0 || score > s.score {
			*s = step{score, int32(from), id}
		}
	}
	for at := 0; at < len(piece); {
		_, width := utf8.DecodeRuneInString(piece[at:])
		single, here := false, best[at].score
		m.trie.Prefixes(piece[at:], func(n int, id int32) {
			offer(at, at+n, id, m.scores[id]+here)
			single = single || n == width
		})
		if !single {
			if m.unk < 0 {
				return dst, fmt.Errorf("the character %q is unknown, and the model has no unk_id", piece[at:at+width])
			}
			offer(at, at+width, m.unk, m.unkScore+here)
		}
		at += width
	}
	return m.collect(dst, piece, best), nil
}

// collect walks back from the end. Neighbouring unknown characters become one
// token, or their bytes.
func (m *unigramModel) collect(dst []int32, piece string, best []step) []int32 {
	start := len(dst)
	for end := len(piece); end > 0; {
		s := best[end]
		from := int(s.from)
		if s.id == m.unk {
			for from > 0 && best[from].id == m.unk {
				from = int(best[from].from)
			}
			dst = m.unknown(dst, piece[from:end])
		} else {
			dst = append(dst, m.vocab[piece[from:end]])
		}
		end = from
	}
	slices.Reverse(dst[start:])
	return dst
}

// unknown adds the ids of an unknown string, last first.
func (m *unigramModel) unknown(dst []int32, s string) []int32 {
	if id, ok := m.vocab[s]; ok {
		return append(dst, id)
	}
	start := len(dst)
	dst, ok := bytesOf(dst, m.fallback, s)
	if !ok {
		return append(dst, m.unk)
	}
	slices.Reverse(dst[start:])
	return dst
}
