package tokenizer

import (
	"os"
	"path/filepath"
	"strings"

	"monotron/internal/exitcode"
	"monotron/internal/gguf"
	"monotron/tokenizer/ggvocab"
	"monotron/tokenizer/hf"
)

// huggingFace is Megatron's HuggingFaceTokenizer: a folder with tokenizer.json,
// whose special tokens tokenizer_config.json names.
type huggingFace struct {
	*hf.Tokenizer
	config Config
	eod    int
	pad    int
	bos    int // -1: it has none
}

// loadHuggingFace reads a folder, or a tokenizer.json with the files next to it.
func loadHuggingFace(c Config) (Tokenizer, error) {
	if c.Model == "" {
		return nil, exitcode.Errorf(exitcode.Usage, "HuggingFaceTokenizer needs --tokenizer-model with the path of a folder that has tokenizer.json, or vocab.json and merges.txt")
	}
	if gguf.Is(c.Model) {
		return loadGGUF(c)
	}
	path, dir := c.Model, filepath.Dir(c.Model)
	if info, err := os.Stat(c.Model); err == nil && info.IsDir() {
		dir, path = c.Model, filepath.Join(c.Model, "tokenizer.json")
		if !exists(path) {
			return loadWithoutJSON(c)
		}
	}
	names, err := readNames(dir)
	if err != nil {
		return nil, err
	}
	inner, err := hf.Load(path, hf.Changes{PrefixSpace: names.prefixSpace()})
	if err != nil {
		return nil, err
	}
	return newHuggingFace(c, inner, names)
}

// loadGGUF reads the tokenizer that a GGUF file holds.
func loadGGUF(c Config) (Tokenizer, error) {
	files, err := ggvocab.Path(c.Model)
	if err != nil {
		return nil, err
	}
	names := &names{path: c.Model}
	var inner *hf.Tokenizer
	for _, f := range files {
		switch f.Name {
		case "tokenizer.json":
			if inner, err = hf.Parse(c.Model, f.Data, hf.Changes{}); err != nil {
				return nil, err
			}
		case "tokenizer_config.json":
			if _, err := names.read(f.Data); err != nil {
				return nil, exitcode.Errorf(exitcode.BadData, "%s: %w", c.Model, err)
			}
		}
	}
	return newHuggingFace(c, inner, names)
}

// newHuggingFace makes the tokenizer of a tokenizer.json and the names of special tokens.
func newHuggingFace(c Config, inner *hf.Tokenizer, names *names) (Tokenizer, error) {
	for _, s := range c.SpecialTokens {
		names.Additional = append(names.Additional, hf.AddedToken{Content: s, Special: true})
	}
	if err := names.apply(inner); err != nil {
		return nil, err
	}
	t := &huggingFace{Tokenizer: inner, config: c, eod: -1, pad: -1, bos: -1}
	var err error
	end := names.EOS
	if end == "" {
		end = names.Sep
	}
	if t.eod, err = names.id(inner, end); err != nil {
		return nil, err
	}
	if t.pad, err = names.id(inner, names.Pad); err != nil {
		return nil, err
	}
	if id, ok := inner.ID(names.BOS); ok && names.BOS != "" {
		t.bos = int(id)
	}
	return t, nil
}

func (t *huggingFace) Name() string           { return "HuggingFaceTokenizer" }
func (t *huggingFace) EOD() int               { return t.eod }
func (t *huggingFace) Pad() (id int, ok bool) { return t.pad, t.pad >= 0 }

func (t *huggingFace) Encode(text string) ([]int32, error) {
	return t.Append(make([]int32, 0, len(text)/3+2), text)
}

func (t *huggingFace) Append(dst []int32, text string) ([]int32, error) {
	return t.append(dst, text, !t.config.NoSpecial)
}

// AppendPlain is what the function of this name asks for.
func (t *huggingFace) AppendPlain(dst []int32, text string) ([]int32, error) {
	return t.append(dst, text, false)
}

func (t *huggingFace) append(dst []int32, text string, special bool) ([]int32, error) {
	if at := invalidAt(text); at >= 0 {
		return dst, notUTF8(at)
	}
	return t.Tokenizer.Append(dst, text, special)
}

func (t *huggingFace) Description() Description { return describeHF(t.config) }

// describeHF lists the options Megatron passes for a HuggingFaceTokenizer.
func describeHF(c Config) Description {
	return Description{Path: c.Model, Options: []Option{
		{"chat_template", "None"},
		{"vocab_file", pythonNone(c.VocabFile)},
		{"merges_file", pythonNone(c.MergeFile)},
		{"additional_special_tokens", pythonList(c.SpecialTokens)},
		{"use_fast", "True"},
		{"trust_remote_code", "False"},
		{"include_special_tokens", pythonBool(!c.NoSpecial)},
		{"use_gigatoken", "False"},
	}}
}

func pythonNone(s string) string {
	if s == "" {
		return "None"
	}
	return s
}

func pythonBool(b bool) string {
	if b {
		return "True"
	}
	return "False"
}

// pythonList is the repr of a list of strings of printable characters.
func pythonList(list []string) string {
	quoted := make([]string, len(list))
	for i, s := range list {
		q := "'"
		if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
			q = `"`
		}
		s = strings.ReplaceAll(s, `\`, `\\`)
		if q == "'" {
			s = strings.ReplaceAll(s, "'", `\'`)
		}
		quoted[i] = q + s + q
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
