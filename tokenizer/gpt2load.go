package tokenizer

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pkoukk/tiktoken-go-loader/assets"

	"monotron/fault"
)

// LoadGPT2 reads a vocabulary ({"token": id}) and a merge list in GPT-2's
// format: tokens spelt with one printable character a byte.
func LoadGPT2(vocabFile, mergesFile string) (*GPT2, error) {
	ids, err := readVocab(vocabFile)
	if err != nil {
		return nil, err
	}
	t := &GPT2{path: "GPT2BPETokenizer", vocabFile: vocabFile, mergesFile: mergesFile}
	if err := t.setTokens(ids); err != nil {
		return nil, fault.Errorf(fault.BadData, "%s: %w", vocabFile, err)
	}
	return t, t.readMerges(ids)
}

func readVocab(path string) (map[string]int32, error) {
	data, err := readFile(path, "--vocab-file")
	if err != nil {
		return nil, err
	}
	ids := map[string]int32{}
	if err := json.Unmarshal(data, &ids); err != nil {
		return nil, fault.Errorf(fault.BadData, "%s: a GPT-2 vocabulary is a JSON object of token and id: %w", path, err)
	}
	return ids, nil
}

// setTokens turns the vocabulary round: id to bytes. Tokens that are not in the
// byte spelling, such as <|endoftext|>, stand for themselves.
func (t *GPT2) setTokens(ids map[string]int32) error {
	t.tokens = make([][]byte, len(ids))
	for token, id := range ids {
		if id < 0 || int(id) >= len(ids) {
			return fault.Errorf(fault.BadData, "token %q has id %d; %d tokens have ids from 0 to %d", token, id, len(ids), len(ids)-1)
		}
		if t.tokens[id] != nil {
			return fault.Errorf(fault.BadData, "id %d is given twice", id)
		}
		if t.tokens[id] = spelledBytes(token); t.tokens[id] == nil {
			t.tokens[id] = []byte(token)
		}
	}
	eod, ok := ids[endOfText]
	if !ok {
		return fault.Errorf(fault.BadData, "the token %s is missing", endOfText)
	}
	t.eod = int(eod)
	for b := range t.bytes {
		id, ok := ids[string(spelling[b])]
		if !ok {
			return fault.Errorf(fault.BadData, "the token %q for byte %d is missing", spelling[b], b)
		}
		t.bytes[b] = id
	}
	return nil
}

func (t *GPT2) readMerges(ids map[string]int32) error {
	data, err := readFile(t.mergesFile, "--merge-file")
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	t.merges = newMerges(len(lines))
	for n, line := range lines {
		if n == 0 && strings.HasPrefix(line, "#version") {
			continue
		}
		left, right, ok := strings.Cut(strings.TrimSuffix(line, "\r"), " ")
		l, okL := ids[left]
		r, okR := ids[right]
		into, okI := ids[left+right]
		if !ok || !okL || !okR || !okI {
			return fault.Errorf(fault.BadData, "%s:%d: %.60q is not a merge of two tokens of %s into a third", t.mergesFile, n+1, line, t.vocabFile)
		}
		t.merges.add(l, r, int32(t.merges.count), into)
	}
	return nil
}

// EmbeddedGPT2 is GPT-2's own vocabulary, from the ranks that a Go module embeds.
// The ranks list each token's bytes in the order the tokens were made, so each
// merge is found by encoding a token with the merges before it: two parts are left.
func EmbeddedGPT2() (*GPT2, error) {
	data, err := assets.Assets.ReadFile("r50k_base.tiktoken")
	if err != nil {
		return nil, fault.Errorf(fault.Internal, "the embedded GPT-2 ranks are missing: %w", err)
	}
	t := &GPT2{path: "GPT2BPETokenizer"}
	for line := range bytes.Lines(data) {
		spelled, rank, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
		token, err := base64.StdEncoding.DecodeString(spelled)
		if id, numErr := strconv.Atoi(rank); err != nil || numErr != nil || id != len(t.tokens) {
			return nil, fault.Errorf(fault.Internal, "the embedded GPT-2 ranks are not understood at line %d", len(t.tokens)+1)
		}
		t.tokens = append(t.tokens, token)
	}
	t.merges = newMerges(len(t.tokens))
	var parts []part
	var ids []int32
	for id, token := range t.tokens {
		if len(token) == 1 {
			t.bytes[token[0]] = int32(id)
			continue
		}
		parts = parts[:0]
		for _, b := range token {
			parts = append(parts, part{id: t.bytes[b]})
		}
		if ids = t.merges.merge(ids[:0], parts); len(ids) != 2 {
			return nil, fault.Errorf(fault.Internal, "the embedded GPT-2 ranks are out of order at %q", token)
		}
		t.merges.add(ids[0], ids[1], int32(t.merges.count), int32(id))
	}
	t.eod = len(t.tokens)
	t.tokens = append(t.tokens, []byte(endOfText))
	return t, nil
}

// spelling is the printable character GPT-2's files write for each byte: the
// byte's own where that is visible, else the next one from U+0100 on.
var spelling = func() (table [256]rune) {
	next := rune(256)
	for b := range table {
		if visible := b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae; visible {
			table[b] = rune(b)
		} else {
			table[b] = next
			next++
		}
	}
	return table
}()

// spelledBytes undoes spelling; nil where a character is none of the 256.
func spelledBytes(token string) []byte {
	out := make([]byte, 0, utf8.RuneCountInString(token))
	for _, r := range token {
		b, ok := spelledByte(r)
		if !ok {
			return nil
		}
		out = append(out, b)
	}
	return out
}

func spelledByte(r rune) (byte, bool) {
	switch {
	case r < 256 && spelling[r] == r:
		return byte(r), true
	case r >= 256 && r < 256+33:
		return byte(r - 256), true
	case r >= 256+33 && r < 256+67:
		return byte(r - 256 - 33 + 0x7f), true
	case r == 256+67:
		return 0xad, true
	}
	return 0, false
}
