package tokenizer

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/pkoukk/tiktoken-go-loader/assets"

	"monotron/fault"
	"monotron/tokenizer/bpe"
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
	bytes, err := byteIDs(ids)
	if err != nil {
		return nil, fault.Errorf(fault.BadData, "%s: %w", vocabFile, err)
	}
	merges, err := readMerges(mergesFile, vocabFile, ids)
	if err != nil {
		return nil, err
	}
	t.bpe = bpe.NewModel(bpe.GPT2, bytes, merges, nil)
	return t, nil
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
	t.spellings = make([][]byte, len(ids))
	for token, id := range ids {
		if id < 0 || int(id) >= len(ids) {
			return fault.Errorf(fault.BadData, "token %q has id %d; %d tokens have ids from 0 to %d", token, id, len(ids), len(ids)-1)
		}
		if t.spellings[id] != nil {
			return fault.Errorf(fault.BadData, "id %d is given twice", id)
		}
		if t.spellings[id] = bpe.Unspell(token); t.spellings[id] == nil {
			t.spellings[id] = []byte(token)
		}
	}
	eod, ok := ids[endOfText]
	if !ok {
		return fault.Errorf(fault.BadData, "the token %s is missing", endOfText)
	}
	t.eod = int(eod)
	return nil
}

// byteIDs are the ids of the single bytes.
func byteIDs(ids map[string]int32) (bytes [256]int32, err error) {
	for b := range bytes {
		id, ok := ids[string(bpe.Spelling[b])]
		if !ok {
			return bytes, fault.Errorf(fault.BadData, "the token %q for byte %d is missing", bpe.Spelling[b], b)
		}
		bytes[b] = id
	}
	return bytes, nil
}

func readMerges(path, vocabFile string, ids map[string]int32) (*bpe.Merges, error) {
	data, err := readFile(path, "--merge-file")
	if err != nil {
		return nil, err
	}
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	merges := bpe.NewMerges(len(lines))
	for n, line := range lines {
		if n == 0 && strings.HasPrefix(line, "#version") {
			continue
		}
		left, right, ok := strings.Cut(strings.TrimSuffix(line, "\r"), " ")
		l, okL := ids[left]
		r, okR := ids[right]
		into, okI := ids[left+right]
		if !ok || !okL || !okR || !okI {
			return nil, fault.Errorf(fault.BadData, "%s:%d: %.60q is not a merge of two tokens of %s into a third", path, n+1, line, vocabFile)
		}
		merges.Add(l, r, int32(merges.Len()), into)
	}
	return merges, nil
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
		if id, numErr := strconv.Atoi(rank); err != nil || numErr != nil || id != len(t.spellings) {
			return nil, fault.Errorf(fault.Internal, "the embedded GPT-2 ranks are not understood at line %d", len(t.spellings)+1)
		}
		t.spellings = append(t.spellings, token)
	}
	merges := bpe.NewMerges(len(t.spellings))
	var bytes [256]int32
	var parts []bpe.Part
	var ids []int32
	for id, token := range t.spellings {
		if len(token) == 1 {
			bytes[token[0]] = int32(id)
			continue
		}
		parts = parts[:0]
		for _, b := range token {
			parts = append(parts, bpe.Part{ID: bytes[b]})
		}
		if ids = merges.Merge(ids[:0], parts); len(ids) != 2 {
			return nil, fault.Errorf(fault.Internal, "the embedded GPT-2 ranks are out of order at %q", token)
		}
		merges.Add(ids[0], ids[1], int32(merges.Len()), int32(id))
	}
	t.eod = len(t.spellings)
	t.spellings = append(t.spellings, []byte(endOfText))
	t.bpe = bpe.NewModel(bpe.GPT2, bytes, merges, nil)
	return t, nil
}
