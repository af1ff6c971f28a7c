package command

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"monotron/internal/exitcode"
	"monotron/tokenizer"
)

// maxPrompt bounds a prompt's file, in bytes.
const maxPrompt = 64 << 20

// repeated is a flag of one value that may stand on a line several times.
type repeated struct{ *cli.StringSliceFlag }

// PromptFlags are the three ways to say where a model starts.
func PromptFlags() []cli.Flag {
	return []cli.Flag{
		repeated{&cli.StringSliceFlag{Name: "prompt", Usage: "continue this text"}},
		repeated{&cli.StringSliceFlag{Name: "prompt-file", Usage: "continue the text in this file; - reads standard input"}},
		&cli.StringSliceFlag{Name: "prompt-ids", Usage: "continue these token ids, separated by spaces or commas, which make one prompt"},
	}
}

// CheckPrompt finds what is wrong with those flags before a model is loaded.
func CheckPrompt(c *cli.Context) error {
	given := 0
	for _, name := range []string{"prompt", "prompt-file", "prompt-ids"} {
		if c.IsSet(name) {
			given++
		}
	}
	if given != 1 {
		return exitcode.Errorf(exitcode.Usage, "give exactly one of --prompt, --prompt-file and --prompt-ids, not %d of them", given)
	}
	if c.IsSet("prompt-ids") {
		_, err := parseIDs(c.StringSlice("prompt-ids"))
		return err
	}
	for _, name := range c.StringSlice("prompt-file") {
		if _, err := os.Stat(name); name != "-" && errors.Is(err, fs.ErrNotExist) {
			return exitcode.Errorf(exitcode.NoInput, "--prompt-file: %w", err)
		}
	}
	return nil
}

// CheckOnePrompt is CheckPrompt for a command that takes one prompt.
func CheckOnePrompt(c *cli.Context) error {
	for _, name := range []string{"prompt", "prompt-file"} {
		if n := len(c.StringSlice(name)); n > 1 {
			return exitcode.Errorf(exitcode.Usage, "--%s is given %d times; %s needs a single prompt", name, n, c.App.Name)
		}
	}
	return CheckPrompt(c)
}

// Prompts are the ids that those flags give; text is encoded by tok, which may be
// nil where the ids are given as such.
func Prompts(c *cli.Context, tok tokenizer.Tokenizer) ([][]int32, error) {
	if err := CheckPrompt(c); err != nil {
		return nil, err
	}
	if c.IsSet("prompt-ids") {
		ids, err := parseIDs(c.StringSlice("prompt-ids"))
		return [][]int32{ids}, err
	}
	// Texts of flags, then of files.
	texts := c.StringSlice("prompt")
	for _, name := range c.StringSlice("prompt-file") {
		text, err := readPrompt(name, c.App.Reader)
		if err != nil {
			return nil, err
		}
		texts = append(texts, text)
	}
	if tok == nil {
		return nil, exitcode.Errorf(exitcode.Usage, "the model's folder does not name a tokenizer; give --tokenizer-type and its files, or --prompt-ids")
	}
	// Their tokens.
	prompts := make([][]int32, len(texts))
	for i, text := range texts {
		if !utf8.ValidString(text) {
			return nil, exitcode.Errorf(exitcode.BadData, "the prompt is not UTF-8; %s", tokenizer.Latin1)
		}
		var err error
		if prompts[i], err = tok.Encode(text); err != nil {
			return nil, err
		}
	}
	return prompts, nil
}

func readPrompt(name string, stdin io.Reader) (string, error) {
	from := stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			code := exitcode.IO
			if errors.Is(err, fs.ErrNotExist) {
				code = exitcode.NoInput
			}
			return "", exitcode.Errorf(code, "--prompt-file: %w", err)
		}
		defer f.Close()
		from = f
	}
	text, err := io.ReadAll(io.LimitReader(from, maxPrompt+1))
	switch {
	case err != nil:
		return "", exitcode.Errorf(exitcode.IO, "--prompt-file %s: %w", name, err)
	case len(text) > maxPrompt:
		return "", exitcode.Errorf(exitcode.BadData, "--prompt-file %s is longer than %d bytes", name, maxPrompt)
	}
	return string(text), nil
}

func parseIDs(words []string) ([]int32, error) {
	var ids []int32
	for _, w := range strings.FieldsFunc(strings.Join(words, " "), func(r rune) bool { return strings.ContainsRune(" ,\t\n[]", r) }) {
		id, err := strconv.ParseInt(w, 10, 32)
		if err != nil || id < 0 {
			return nil, exitcode.Errorf(exitcode.Usage, "--prompt-ids: %q is not a token id", w)
		}
		ids = append(ids, int32(id))
	}
	return ids, nil
}

// OwnTokenizer makes the tokenizer that the flags name or, without any such
// flag, that of the model's folder; nil where neither names one.
func OwnTokenizer(c *cli.Context, stored tokenizer.Config) (tokenizer.Tokenizer, error) {
	given, err := TokenizerConfig(c)
	if err != nil {
		return nil, err
	}
	config := given
	switch {
	case config.IsZero():
		config = stored
	case config.Type == "":
		config.Type = stored.Type
	}
	if config.IsZero() {
		return nil, nil
	}
	tok, err := tokenizer.FromConfig(config)
	if err == nil || !given.IsZero() {
		return tok, err
	}
	if c.IsSet("prompt-ids") {
		fmt.Fprintf(c.App.ErrWriter, "texts cannot be printed, because the %s that the checkpoint names cannot be read: %v\n", config.Type, err)
		return nil, nil
	}
	return nil, exitcode.Errorf(exitcode.CodeOf(err), "the %s that the checkpoint names cannot be read: %w; give --tokenizer-type and its files, or --prompt-ids", config.Type, err)
}
