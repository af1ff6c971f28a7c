package tokenizer

import (
	"os"
	"path/filepath"
	"strconv"

	"monotron/fault"
	"monotron/flags"
)

// Config is what the tokenizer flags say. The zero value, with Type set, means
// every default.
type Config struct {
	Type      string // --tokenizer-type; "": from the files given
	VocabFile string
	MergeFile string
	Model     string // --tokenizer-model
	VocabSize int    // 0: not given
	NullEOD   *int   // --null-tokenizer-eod-id
}

// Flag is one row of the table of tokenizer flags, which every command that
// reads text shares.
type Flag struct {
	Name    string // without dashes
	Arity   flags.Arity
	Default string
	Help    string
	// Set stores the flag's values; a value that cannot be is an error without
	// the flag's name.
	Set func(c *Config, values []string) error
}

// Flags is that table.
func Flags() []Flag {
	return []Flag{
		{"tokenizer-type", flags.One, "", "GPT2BPETokenizer (implied by --vocab-file with --merge-file), NullTokenizer (by --vocab-size alone), CharTokenizer, or HuggingFaceTokenizer on a GPT-2 folder",
			func(c *Config, v []string) error { c.Type = v[0]; return nil }},
		{"vocab-file", flags.One, "", "vocabulary: GPT-2's vocab.json, or a character tokenizer's JSON list",
			func(c *Config, v []string) error { c.VocabFile = v[0]; return nil }},
		{"merge-file", flags.One, "", "GPT-2's merges.txt; without it and --vocab-file GPT-2's own ranks are built in",
			func(c *Config, v []string) error { c.MergeFile = v[0]; return nil }},
		{"tokenizer-model", flags.One, "", "folder of a HuggingFaceTokenizer",
			func(c *Config, v []string) error { c.Model = v[0]; return nil }},
		{"vocab-size", flags.One, "", "number of ids of a NullTokenizer",
			func(c *Config, v []string) (err error) { c.VocabSize, err = wholeNumber(v[0], 1); return err }},
		{"null-tokenizer-eod-id", flags.One, "", "end-of-document id of a NullTokenizer; default the last id",
			func(c *Config, v []string) error {
				n, err := wholeNumber(v[0], 0)
				c.NullEOD = &n
				return err
			}},
	}
}

func wholeNumber(s string, least int) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < least || n > 1<<31-1 {
		return 0, fault.Errorf(fault.Usage, "%q is not a whole number from %d to 2147483647", s, least)
	}
	return n, nil
}

// FromConfig makes the tokenizer that the flags name.
func FromConfig(c Config) (Tokenizer, error) {
	switch c.kind() {
	case "GPT2BPETokenizer":
		return gpt2FromConfig(c)
	case "NullTokenizer":
		eod := -1
		if c.NullEOD != nil {
			eod = *c.NullEOD
		}
		return orNil(NewNull(c.VocabSize, eod))
	case "CharTokenizer":
		if c.VocabFile == "" {
			return nil, fault.Errorf(fault.Usage, "CharTokenizer needs --vocab-file, the JSON list that preprocess_data writes beside its output")
		}
		return orNil(LoadChar(c.VocabFile))
	case "HuggingFaceTokenizer":
		return hfFromConfig(c)
	case "":
		return nil, fault.Errorf(fault.Usage, "--tokenizer-type is missing, and the other flags do not say it: GPT2BPETokenizer, NullTokenizer, CharTokenizer or HuggingFaceTokenizer")
	}
	return nil, fault.Errorf(fault.Usage, "--tokenizer-type %s is not among those that work here: GPT2BPETokenizer, NullTokenizer, CharTokenizer, HuggingFaceTokenizer (a GPT-2 folder)", c.Type)
}

// kind is Type; where that was not given, it follows from the files: old command
// lines name GPT-2's two and no type.
func (c Config) kind() string {
	switch {
	case c.Type != "":
		return c.Type
	case c.VocabFile != "" && c.MergeFile != "":
		return "GPT2BPETokenizer"
	case c.VocabFile == "" && c.MergeFile == "" && c.Model == "" && c.VocabSize > 0:
		return "NullTokenizer"
	}
	return ""
}

func gpt2FromConfig(c Config) (Tokenizer, error) {
	switch {
	case c.VocabFile == "" && c.MergeFile == "":
		return orNil(EmbeddedGPT2())
	case c.VocabFile == "" || c.MergeFile == "":
		return nil, fault.Errorf(fault.Usage, "GPT2BPETokenizer takes --vocab-file and --merge-file together, or neither (GPT-2's own are built in)")
	}
	return orNil(LoadGPT2(c.VocabFile, c.MergeFile))
}

// hfFromConfig reads a folder that holds GPT-2's two files under Hugging Face's
// names. A tokenizer.json may say something else, so it is refused, not ignored.
func hfFromConfig(c Config) (Tokenizer, error) {
	if c.Model == "" {
		return nil, fault.Errorf(fault.Usage, "HuggingFaceTokenizer needs --tokenizer-model, a folder with vocab.json and merges.txt")
	}
	if other := filepath.Join(c.Model, "tokenizer.json"); exists(other) {
		return nil, fault.Errorf(fault.Usage, "%s is not read here; HuggingFaceTokenizer takes a folder with only GPT-2's vocab.json and merges.txt", other)
	}
	t, err := LoadGPT2(filepath.Join(c.Model, "vocab.json"), filepath.Join(c.Model, "merges.txt"))
	if err != nil {
		return nil, err
	}
	return hfGPT2{t, c.Model}, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// hfGPT2 differs from GPT2 in its name and description only.
type hfGPT2 struct {
	*GPT2
	folder string
}

func (t hfGPT2) Name() string { return "HuggingFaceTokenizer" }

func (t hfGPT2) Description() Description {
	options := []Option{{"chat_template", "None"}, {"vocab_file", "None"}, {"merges_file", "None"}, {"additional_special_tokens", "[]"}}
	return Description{Path: t.folder, Options: append(options, t.GPT2.Description().Options[3:]...)}
}

// orNil keeps a nil pointer out of the interface.
func orNil[T Tokenizer](t T, err error) (Tokenizer, error) {
	if err != nil {
		return nil, err
	}
	return t, nil
}
