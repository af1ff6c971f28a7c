package command

import (
	"bytes"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

// Claim: a line of a description that is broken at the page's width continues in the next one, if that is of
// the same paragraph; indented lines stay as they are.
func TestParagraphs(t *testing.T) {
	long := strings.Repeat("word ", 21) + "end."
	for text, want := range map[string]string{
		"short\nlines":            "short\nlines\n",
		long + "\nNext.":          strings.TrimSpace(strings.Repeat("word ", 20)) + "\nword end. Next.\n",
		long + "\n  row\n" + long: strings.TrimSpace(strings.Repeat("word ", 20)) + "\nword end.\n  row\n" + strings.TrimSpace(strings.Repeat("word ", 20)) + "\nword end.\n",
		long + "\n\nNext.":        strings.TrimSpace(strings.Repeat("word ", 20)) + "\nword end.\n\nNext.\n",
	} {
		var out bytes.Buffer
		page{w: &out}.paragraphs(text)
		if out.String() != want {
			t.Errorf("%q: %q, want %q", text, out.String(), want)
		}
	}
}

// Claim (docs/tokenizers.md): tools take Megatron-DeepSpeed's name of --tokenizer-model.
func TestTokenizerNames(t *testing.T) {
	var got string
	app := &cli.App{Flags: TokenizerFlags(), Action: func(c *cli.Context) error {
		config, err := TokenizerConfig(c)
		got = config.Type + " " + config.Model
		return err
	}}
	if err := app.Run([]string{"x", "--tokenizer-type", "PretrainedFromHF", "--tokenizer-name-or-path", "folder"}); err != nil || got != "HuggingFaceTokenizer folder" {
		t.Errorf("%q, %v", got, err)
	}
}
