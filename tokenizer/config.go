package tokenizer

import (
	"cmp"
	"os"
	"slices"
	"strings"

	"monotron/internal/argv"
	"monotron/internal/exitcode"
)

// Config is what the tokenizer flags say. The zero value, with Type set, means
// every default.
type Config struct {
	Type          string   `json:",omitempty"` // --tokenizer-type; "": from the files given
	VocabFile     string   `json:",omitempty"`
	MergeFile     string   `json:",omitempty"`
	Model         string   `json:",omitempty"` // --tokenizer-model
	SpecialTokens []string `json:",omitempty"` // --tokenizer-special-tokens
	VocabSize     int      `json:",omitempty"` // 0: not given
	NullEOD       *int     `json:",omitempty"` // --null-tokenizer-eod-id
	NullPad       *int     `json:",omitempty"` // --null-tokenizer-pad-id; nil: NoPad
	TikPattern    string   `json:",omitempty"` // --tiktoken-pattern; "": v2
	TikSpecials   *int     `json:",omitempty"` // --tiktoken-num-special-tokens; nil: 1000
	NoSpecial     bool     `json:",omitempty"` // --tokenizer-hf-no-include-special-tokens
	Legacy        bool     `json:",omitempty"` // --tokenizer-sentencepiece-legacy
}

// IsZero says that no flag was given.
func (c Config) IsZero() bool {
	return c.Type == "" && c.VocabFile == "" && c.MergeFile == "" && c.Model == "" && len(c.SpecialTokens) == 0 && c.VocabSize == 0 &&
		c.NullEOD == nil && c.NullPad == nil && c.TikPattern == "" && c.TikSpecials == nil && !c.NoSpecial && !c.Legacy
}

// File is a file or folder of the tokenizer, for what lies with it, as a chat template does; "": it has
// none.
func (c Config) File() string { return cmp.Or(c.Model, c.VocabFile) }

// Paths are the fields that name files or folders.
func (c *Config) Paths() []*string { return []*string{&c.VocabFile, &c.MergeFile, &c.Model} }

// Flag is one row of the table of tokenizer flags, which every command that
// reads text shares.
type Flag struct {
	Name    string // without dashes
	Arity   argv.Arity
	Default string
	Help    string
	// Set stores the flag's values; a value that cannot be is an error without
	// the flag's name.
	Set func(c *Config, values []string) error
}

// Flags is that table.
func Flags() []Flag {
	return []Flag{
		// Which tokenizer, and its files.
		{"tokenizer-type", argv.One, "", "choose the tokenizer: " + strings.Join(types, ", ") + " (default: GPT2BPETokenizer with --vocab-file and --merge-file, NullTokenizer with --vocab-size alone)",
			func(c *Config, v []string) error { c.Type = TypeOf(v[0]); return nil }},
		{"vocab-file", argv.One, "", "read the vocabulary from this file: GPT-2's vocab.json, or a character tokenizer's JSON list",
			func(c *Config, v []string) error { c.VocabFile = v[0]; return nil }},
		{"merge-file", argv.One, "", "read GPT-2's merges.txt from this file (default: without --vocab-file, the built-in merges of GPT-2)",
			func(c *Config, v []string) error { c.MergeFile = v[0]; return nil }},
		{"tokenizer-model", argv.One, "", "read the tokenizer from this path: a folder with tokenizer.json, a SentencePiece .model file, or a TikTokenizer vocabulary (JSON or .tiktoken)",
			func(c *Config, v []string) error { c.Model = v[0]; return nil }},
		// Special tokens.
		{"tokenizer-special-tokens", argv.Many, "", "set the special tokens of a TikTokenizer, or add special tokens to a HuggingFaceTokenizer or, with --tokenizer-sentencepiece-legacy, to a SentencePiece tokenizer",
			func(c *Config, v []string) error { c.SpecialTokens = v; return nil }},
		{"tokenizer-hf-no-include-special-tokens", argv.Switch, "", "do not let a HuggingFaceTokenizer add special tokens around a text",
			func(c *Config, _ []string) error { c.NoSpecial = true; return nil }},
		{"tokenizer-sentencepiece-legacy", argv.Switch, "", "let a SentencePiece tokenizer split a text at --tokenizer-special-tokens before the text is tokenized",
			func(c *Config, _ []string) error { c.Legacy = true; return nil }},
		// Of one type each.
		{"tiktoken-pattern", argv.One, "", "choose the pattern by which a TikTokenizer splits text: v1 or v2 (default: v2)",
			func(c *Config, v []string) error { c.TikPattern = v[0]; return nil }},
		{"tiktoken-num-special-tokens", argv.One, "", "set the number of ids that a TikTokenizer reserves for special tokens, before the ids of its vocabulary (default: 1000)",
			func(c *Config, v []string) error {
				n, err := integerFrom(v[0], 0)
				c.TikSpecials = &n
				return err
			}},
		{"vocab-size", argv.One, "", "set the number of ids of a NullTokenizer or TikTokenizer",
			func(c *Config, v []string) (err error) { c.VocabSize, err = integerFrom(v[0], 1); return err }},
		{"null-tokenizer-eod-id", argv.One, "", "set the end-of-document id of a NullTokenizer (default: the last id)",
			func(c *Config, v []string) error {
				n, err := integerFrom(v[0], 0)
				c.NullEOD = &n
				return err
			}},
		{"null-tokenizer-pad-id", argv.One, "", "set the padding id of a NullTokenizer; tokens with this id are excluded from the loss (default: -1, which no token has)",
			func(c *Config, v []string) error {
				n, err := integerFrom(v[0], NoPad)
				c.NullPad = &n
				return err
			}},
	}
}

// types are the values of --tokenizer-type.
var types = []string{"GPT2BPETokenizer", "HuggingFaceTokenizer", "SentencePieceTokenizer", "GPTSentencePieceTokenizer", "Llama2Tokenizer", "TikTokenizer", "CharTokenizer", "NullTokenizer"}

// TypeOf is the --tokenizer-type that a name stands for: Megatron-DeepSpeed calls HuggingFaceTokenizer PretrainedFromHF.
func TypeOf(name string) string {
	if name == "PretrainedFromHF" {
		return "HuggingFaceTokenizer"
	}
	return name
}

// Known reports whether name is a --tokenizer-type of this program.
func Known(name string) bool { return slices.Contains(types, name) }

func integerFrom(s string, least int) (int, error) {
	n, ok := argv.Int(s)
	if !ok || n < int64(least) || n > 1<<31-1 {
		return 0, exitcode.Errorf(exitcode.Usage, "%q is not an integer from %d to 2147483647", s, least)
	}
	return int(n), nil
}

func orElse(given *int, otherwise int) int {
	if given == nil {
		return otherwise
	}
	return *given
}

// FromConfig makes the tokenizer that the flags name.
func FromConfig(c Config) (Tokenizer, error) {
	switch c.kind() {
	case "GPT2BPETokenizer":
		return gpt2FromConfig(c)
	case "NullTokenizer":
		return orNil(NewNull(c.VocabSize, orElse(c.NullEOD, -1), orElse(c.NullPad, NoPad)))
	case "CharTokenizer":
		if c.VocabFile == "" {
			return nil, exitcode.Errorf(exitcode.Usage, "CharTokenizer needs --vocab-file with the path of a JSON list of its characters; to make this list (PREFIX_vocab.json) from a text file, use monotron preprocess_data --tokenizer-type CharTokenizer --input TEXT.txt --output-prefix PREFIX")
		}
		return orNil(LoadChar(c.VocabFile))
	case "HuggingFaceTokenizer":
		return loadHuggingFace(c)
	case "SentencePieceTokenizer", "GPTSentencePieceTokenizer", "Llama2Tokenizer":
		return loadSentencePiece(c)
	case "TikTokenizer":
		return loadTik(c)
	case "":
		return nil, exitcode.Errorf(exitcode.Usage, "--tokenizer-type is missing and cannot be derived from the other flags; choose one of %s", strings.Join(types, ", "))
	}
	return nil, exitcode.Errorf(exitcode.Usage, "--tokenizer-type %s is unknown; choose one of %s", c.Type, strings.Join(types, ", "))
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
		return nil, exitcode.Errorf(exitcode.Usage, "GPT2BPETokenizer needs both --vocab-file and --merge-file, or neither (the files of GPT-2 are built in)")
	}
	return orNil(LoadGPT2(c.VocabFile, c.MergeFile))
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// orNil keeps a nil pointer out of the interface.
func orNil[T Tokenizer](t T, err error) (Tokenizer, error) {
	if err != nil {
		return nil, err
	}
	return t, nil
}
