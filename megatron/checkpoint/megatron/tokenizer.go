package megatron

import (
	"encoding/json"
	"path/filepath"
	"strings"

	"monotron/internal/pickle"
	"monotron/megatron/checkpoint"
	"monotron/tokenizer"
)

// KeepTokenizer puts the files of the tokenizer into the folder dir, whose name will
// be final, and says in the arguments which tokenizer it is and where it lies. It
// comes before the arguments are written.
func (t *Target) KeepTokenizer(dir, final string) (notes []string, err error) {
	c := t.tokenizer
	if !t.noFiles {
		kept, note, err := checkpoint.KeepTokenizer(dir, c)
		if err != nil {
			return nil, err
		}
		if note != "" {
			notes = []string{note}
		}
		if full, err := filepath.Abs(final); kept && err == nil {
			c = checkpoint.KeptTokenizer(dir, c)
			for _, path := range []*string{&c.VocabFile, &c.MergeFile, &c.Model} {
				if rest, inside := strings.CutPrefix(*path, dir); inside {
					*path = full + rest
				}
			}
		}
	}
	t.Args.setTokenizer(c)
	return notes, nil
}

// setTokenizer says c in Megatron's arguments; what c leaves open stays as it is.
func (a Args) setTokenizer(c tokenizer.Config) {
	for name, text := range byName(map[string]string{"tokenizer_type": c.Type, "vocab_file": c.VocabFile, "merge_file": c.MergeFile,
		"tokenizer_model": c.Model, "tiktoken_pattern": c.TikPattern}) {
		if text != "" {
			a.Set(name, text)
		}
	}
	for name, n := range byName(map[string]*int{"null_tokenizer_eod_id": c.NullEOD, "null_tokenizer_pad_id": c.NullPad, "tiktoken_num_special_tokens": c.TikSpecials}) {
		if n != nil {
			a.Set(name, int64(*n))
		}
	}
	for name, on := range byName(map[string]bool{"tokenizer_hf_no_include_special_tokens": c.NoSpecial, "tokenizer_sentencepiece_legacy": c.Legacy}) {
		if on {
			a.Set(name, true)
		}
	}
	if len(c.SpecialTokens) > 0 {
		list := &pickle.List{}
		for _, s := range c.SpecialTokens {
			list.Items = append(list.Items, s)
		}
		a.Set("tokenizer_special_tokens", list)
	}
}

// specialsArg is the argument that keeps checkpoint.Info's Specials, as JSON; Megatron-LM has none for them.
const specialsArg = "monotron_special_tokens"

// setSpecials keeps the ids of special tokens, such as several that end a text; nil: what is there stays.
func (a Args) setSpecials(ids map[string][]int32) error {
	if len(ids) == 0 {
		return nil
	}
	text, err := json.Marshal(ids)
	if err == nil {
		a.Set(specialsArg, string(text))
	}
	return err
}

// Specials are the ids that setSpecials has kept; nil: none.
func (a Args) Specials() (ids map[string][]int32) {
	if json.Unmarshal([]byte(a.Text(specialsArg, "")), &ids) != nil {
		return nil
	}
	return ids
}

// Tokenizer is the one that the arguments of the checkpoint in folder dir name, with the
// files kept there; zero where they name none that this program has. A NullTokenizer
// says nothing: programs without a tokenizer write that.
func (a Args) Tokenizer(dir string) tokenizer.Config {
	c := tokenizer.Config{Type: a.Text("tokenizer_type", ""), VocabFile: a.Text("vocab_file", ""), MergeFile: a.Text("merge_file", ""),
		Model: a.Text("tokenizer_model", ""), NoSpecial: a.Bool("tokenizer_hf_no_include_special_tokens"), Legacy: a.Bool("tokenizer_sentencepiece_legacy")}
	if !tokenizer.Known(c.Type) || c.Type == "NullTokenizer" {
		return tokenizer.Config{}
	}
	tokens, _ := a.Get("tokenizer_special_tokens")
	items, _ := pickle.Items(tokens)
	for _, item := range items {
		if s, ok := item.(string); ok {
			c.SpecialTokens = append(c.SpecialTokens, s)
		}
	}
	if c.Type == "TikTokenizer" {
		c.TikPattern, c.VocabSize = a.Text("tiktoken_pattern", ""), a.Int("vocab_size", 0)
		if n := a.Int("tiktoken_num_special_tokens", -1); n >= 0 {
			c.TikSpecials = &n
		}
	}
	return checkpoint.KeptTokenizer(dir, c)
}
