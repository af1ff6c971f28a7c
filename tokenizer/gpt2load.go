package tokenizer

import (
	_ "embed"
	"encoding/binary"
	"strings"

	"monotron/internal/exitcode"
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
		return nil, exitcode.Errorf(exitcode.BadData, "%s: %w", vocabFile, err)
	}
	bytes, err := byteIDs(ids)
	if err != nil {
		return nil, exitcode.Errorf(exitcode.BadData, "%s: %w", vocabFile, err)
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
	if err := exitcode.JSON(path, data, &ids); err != nil {
		return nil, exitcode.Errorf(exitcode.BadData, "%w; a GPT-2 vocabulary must be a JSON object of tokens and their ids", err)
	}
	return ids, nil
}

// setTokens turns the vocabulary round: id to bytes. Tokens that are not in the
// byte spelling, such as <|endoftext|>, stand for themselves.
func (t *GPT2) setTokens(ids map[string]int32) error {
	t.spellings = make([][]byte, len(ids))
	for token, id := range ids {
		if id < 0 || int(id) >= len(ids) {
			return exitcode.Errorf(exitcode.BadData, "token %q has id %d, but %d tokens must have ids from 0 to %d", token, id, len(ids), len(ids)-1)
		}
		if t.spellings[id] != nil {
			return exitcode.Errorf(exitcode.BadData, "two tokens have the id %d", id)
		}
		if t.spellings[id] = bpe.Unspell(token); t.spellings[id] == nil {
			t.spellings[id] = []byte(token)
		}
	}
	eod, ok := ids[endOfText]
	if !ok {
		return exitcode.Errorf(exitcode.BadData, "the token %s is missing", endOfText)
	}
	t.eod = int(eod)
	return nil
}

// byteIDs are the ids of the single bytes.
func byteIDs(ids map[string]int32) (bytes [256]int32, err error) {
	for b := range bytes {
		id, ok := ids[string(bpe.Spelling[b])]
		if !ok {
			return bytes, exitcode.Errorf(exitcode.BadData, "the token %q for byte %d is missing", bpe.Spelling[b], b)
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
			return nil, exitcode.Errorf(exitcode.BadData, "%s:%d: %.60q is not a merge of two tokens of %s into a third", path, n+1, line, vocabFile)
		}
		merges.Add(l, r, int32(merges.Len()), into)
	}
	return merges, nil
}

// gpt2Merges is GPT-2's own vocabulary: the bytes of the first 256 ids, then two
// u16 for each further id, the ids that merge into it; in the order of their ranks.
//
//go:embed gpt2.merges
var gpt2Merges []byte

// EmbeddedGPT2 is GPT-2's own vocabulary.
func EmbeddedGPT2() (*GPT2, error) {
	singles, pairs := gpt2Merges[:256], gpt2Merges[256:]
	t := &GPT2{path: "GPT2BPETokenizer", eod: 256 + len(pairs)/4}
	t.spellings = make([][]byte, 0, t.eod+1)
	var ids [256]int32
	for id, b := range singles {
		ids[b] = int32(id)
		t.spellings = append(t.spellings, singles[id:id+1:id+1])
	}
	merges, text := bpe.NewMerges(t.eod-256), make([]byte, 0, 8*t.eod)
	for rank := range int32(t.eod - 256) {
		left, right := int32(binary.LittleEndian.Uint16(pairs[4*rank:])), int32(binary.LittleEndian.Uint16(pairs[4*rank+2:]))
		merges.Add(left, right, rank, 256+rank)
		from := len(text)
		text = append(append(text, t.spellings[left]...), t.spellings[right]...)
		t.spellings = append(t.spellings, text[from:len(text):len(text)])
	}
	t.spellings = append(t.spellings, []byte(endOfText))
	t.bpe = bpe.NewModel(bpe.GPT2, ids, merges, nil)
	return t, nil
}
