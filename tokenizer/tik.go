package tokenizer

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"unsafe"

	"monotron/internal/argv"
	"monotron/internal/exitcode"
	"monotron/tokenizer/bpe"
	"monotron/tokenizer/trie"
)

// Tik is Megatron's TikTokenizer: ranks of byte strings behind a block of
// special tokens. A special token found literally in a text becomes its id.
type Tik struct {
	spellings // what each id stands for, special tokens first
	specials  *trie.Trie
	bpe       *bpe.Model
	named     map[string]int
	config    Config
}

const (
	tikVocab    = 131072 // --vocab-size, where it is not given
	tikSpecials = 1000   // --tiktoken-num-special-tokens
)

// tikNames are the first special tokens; every list must hold them.
var tikNames = []string{"<unk>", "<s>", "</s>", "<mask>", "<pad>", "<cls>", "<sep>"}

func loadTik(c Config) (Tokenizer, error) {
	pattern, ok := map[string]bpe.Pattern{"": bpe.V2, "v2": bpe.V2, "v1": bpe.V1}[c.TikPattern]
	switch {
	case c.Model == "":
		return nil, exitcode.Errorf(exitcode.Usage, "TikTokenizer needs --tokenizer-model with the path of a JSON list of tokens or of a .tiktoken file")
	case !ok:
		return nil, argv.WrongChoice("tiktoken-pattern", c.TikPattern, "v1", "v2")
	}
	// Special tokens come first, then ranks up to the vocabulary's size.
	specials, err := tikSpecialTokens(c)
	if err != nil {
		return nil, err
	}
	ranks, err := readRanks(c.Model)
	if err != nil {
		return nil, err
	}
	vocab := c.VocabSize
	if vocab == 0 {
		vocab = tikVocab
		if strings.HasSuffix(c.Model, ".tiktoken") {
			vocab = min(vocab, len(specials)+len(ranks))
		}
	}
	inner := vocab - len(specials)
	if inner < 256 || inner > len(ranks) {
		return nil, exitcode.Errorf(exitcode.Usage, "a vocabulary of %d ids, of which %d are for special tokens, leaves %d ids for other tokens; there must be at least 256 of these, and at most the %d tokens of %s; give --vocab-size %d", vocab, len(specials), inner, len(ranks), c.Model, len(ranks)+len(specials))
	}
	t := &Tik{config: c, named: map[string]int{}}
	if err := t.build(specials, ranks[:inner], pattern); err != nil {
		return nil, exitcode.Errorf(exitcode.BadData, "%s: %w", c.Model, err)
	}
	return t, nil
}

// tikSpecialTokens is the list that the flags say, filled up with <SPECIAL_n>.
func tikSpecialTokens(c Config) ([]string, error) {
	list := c.SpecialTokens
	if len(list) == 0 {
		list = tikNames
	}
	n := tikSpecials
	if c.TikSpecials != nil {
		n = *c.TikSpecials
	}
	if len(list) > n {
		return nil, exitcode.Errorf(exitcode.Usage, "there are %d special tokens, more than --tiktoken-num-special-tokens %d; raise this number, or give fewer special tokens", len(list), n)
	}
	// As many as there are ids for, each once, and those that must be there.
	seen := map[string]bool{}
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("<SPECIAL_%d>", i)
		if i < len(list) {
			out[i] = list[i]
		}
		if seen[out[i]] || out[i] == "" {
			return nil, exitcode.Errorf(exitcode.Usage, "the special token %q occurs twice or is empty", out[i])
		}
		seen[out[i]] = true
	}
	for _, name := range tikNames {
		if !seen[name] {
			return nil, exitcode.Errorf(exitcode.Usage, "--tokenizer-special-tokens does not have %s; TikTokenizer needs %s", name, strings.Join(tikNames, " "))
		}
	}
	return out, nil
}

// readRanks reads byte strings in the order of their ranks: Megatron's JSON
// list of {rank, token_bytes, token_str}, or lines "base64 rank".
func readRanks(path string) ([][]byte, error) {
	data, err := readFile(path, "--tokenizer-model")
	if err != nil {
		return nil, err
	}
	if strings.HasSuffix(path, ".tiktoken") {
		return readRankLines(path, data)
	}
	var list []struct {
		Rank  *int
		Bytes []byte `json:"token_bytes"`
	}
	if err := exitcode.JSON(path, data, &list); err != nil {
		return nil, exitcode.Errorf(exitcode.BadData, "%w; the file must be a JSON list of objects with rank, token_bytes (base64) and token_str", err)
	}
	out := make([][]byte, len(list))
	for i, x := range list {
		switch {
		case x.Rank == nil || *x.Rank != i:
			return nil, exitcode.Errorf(exitcode.BadData, "%s: entry %d does not have the rank %d; ranks must be in order, from 0", path, i, i)
		case len(x.Bytes) == 0:
			return nil, exitcode.Errorf(exitcode.BadData, "%s: the token_bytes of entry %d are missing or empty", path, i)
		case i < 256 && (len(x.Bytes) != 1 || int(x.Bytes[0]) != i):
			return nil, exitcode.Errorf(exitcode.BadData, "%s: the token_bytes of entry %d are not the byte %d; the first 256 entries must be the bytes in order", path, i, i)
		}
		out[i] = x.Bytes
	}
	return out, nil
}

func readRankLines(path string, data []byte) (out [][]byte, err error) {
	for line := range bytes.Lines(data) {
		spelled, rank, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
		if spelled == "" {
			continue
		}
		token, err := base64.StdEncoding.DecodeString(spelled)
		if n, numErr := strconv.Atoi(rank); err != nil || numErr != nil || n != len(out) || len(token) == 0 {
			return nil, exitcode.Errorf(exitcode.BadData, "%s: line %d must be a token in base64 and the rank %d", path, len(out)+1, len(out))
		}
		out = append(out, token)
	}
	return out, nil
}

// build numbers the tokens. Two neighbours are joined when together they are a
// token, so every way to cut a token in two is a merge with the token's rank.
func (t *Tik) build(specials []string, ranks [][]byte, p bpe.Pattern) error {
	// Special tokens.
	base := int32(len(specials))
	keys := make([]int32, len(specials))
	for i, s := range specials {
		t.spellings = append(t.spellings, []byte(s))
		t.named[s], keys[i] = i, int32(i)
	}
	t.specials = trie.New(specials, keys)
	// Ranks, each of the 256 bytes among them.
	ids := make(map[string]int32, len(ranks))
	var single [256]int32
	found := 0
	for i, token := range ranks {
		if _, twice := ids[string(token)]; twice {
			return exitcode.Errorf(exitcode.BadData, "the token of rank %d occurs twice", i)
		}
		ids[string(token)] = base + int32(i)
		if len(token) == 1 {
			single[token[0]] = base + int32(i)
			found++
		}
		t.spellings = append(t.spellings, token)
	}
	if found != 256 {
		return exitcode.Errorf(exitcode.BadData, "only %d of the 256 single bytes are tokens; all of them must be tokens", found)
	}
	merges := bpe.NewMerges(4 * len(ranks))
	for i, token := range ranks {
		for cut := 1; cut < len(token); cut++ {
			left, okL := ids[string(token[:cut])]
			right, okR := ids[string(token[cut:])]
			if okL && okR {
				merges.Add(left, right, int32(i), base+int32(i))
			}
		}
	}
	t.bpe = bpe.NewModel(p, single, merges, ids)
	return nil
}

func (t *Tik) Name() string           { return "TikTokenizer" }
func (t *Tik) VocabSize() int         { return len(t.spellings) }
func (t *Tik) EOD() int               { return t.named["</s>"] }
func (t *Tik) Pad() (id int, ok bool) { return t.named["<pad>"], true }

// Description lists the options Megatron passes.
func (t *Tik) Description() Description {
	d := Description{Path: t.config.Model, Options: []Option{{"chat_template", "None"}}}
	if t.config.TikPattern != "" {
		d.Options = append(d.Options, Option{"pattern", t.config.TikPattern})
	}
	if t.config.VocabSize != 0 {
		d.Options = append(d.Options, Option{"vocab_size", strconv.Itoa(t.config.VocabSize)})
	}
	n, list := tikSpecials, "None"
	if t.config.TikSpecials != nil {
		n = *t.config.TikSpecials
	}
	if len(t.config.SpecialTokens) > 0 {
		list = pythonList(t.config.SpecialTokens)
	}
	return Description{d.Path, append(d.Options, Option{"num_special_tokens", strconv.Itoa(n)}, Option{"special_tokens", list})}
}

func (t *Tik) Encode(text string) ([]int32, error) {
	return t.Append(make([]int32, 0, len(text)/3+2), text)
}

func (t *Tik) Append(dst []int32, text string) ([]int32, error) {
	if at := invalidAt(text); at >= 0 {
		return dst, notUTF8(at)
	}
	for {
		at, n, id := t.specials.Find(text, 0)
		rest := text
		if at >= 0 {
			rest = text[:at]
		}
		if rest != "" {
			dst = t.bpe.Append(dst, unsafe.Slice(unsafe.StringData(rest), len(rest)))
		}
		if at < 0 {
			return dst, nil
		}
		dst = append(dst, id)
		text = text[at+n:]
	}
}
