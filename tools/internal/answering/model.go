// Package answering is what the commands share that answer people with a model: what a request needs
// of it in addition to the weights, and how much runs at once.
package answering

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"monotron/megatron/inference"
	"monotron/tokenizer"
	"monotron/tokenizer/chat"
	"monotron/tools/internal/command"
)

// Model is what requests need in addition to the weights.
type Model struct {
	Tok      tokenizer.Tokenizer // nil: ids only
	Template *chat.Template      // nil: NoChat says why
	NoChat   error
	Vocab    int
	Context  int     // positions; 0: no limit of the model's own
	Ends     []int32 // ids that end a text
}

// Of finds it for a loaded model; template is the text of a chat template that replaces the tokenizer's,
// "" for that.
func Of(c *cli.Context, m *inference.Loaded, template string) (a *Model, err error) {
	a = &Model{Vocab: m.Vocab, Context: m.MaxContext}
	if a.Tok, err = command.OwnTokenizer(c, m.Tokenizer); err != nil {
		return nil, err
	}
	for _, id := range m.Ends {
		if int(id) < m.Vocab {
			a.Ends = append(a.Ends, id)
		}
	}
	if len(a.Ends) == 0 && a.Tok != nil && a.Tok.EOD() >= 0 && a.Tok.EOD() < m.Vocab {
		a.Ends = []int32{int32(a.Tok.EOD())}
	}
	a.Template, a.NoChat = templateOf(c, m, template)
	return a, nil
}

// templateOf is the template that a flag or the tokenizer's folder gives, or why there is none.
func templateOf(c *cli.Context, m *inference.Loaded, text string) (*chat.Template, error) {
	source := chat.Source{Text: text}
	dir := m.Tokenizer.File()
	if given := c.String("tokenizer-model"); given != "" {
		dir = given
	}
	if err := source.ReadFolder(dir); err != nil {
		return nil, err
	}
	return chat.New(source)
}

// Encode is the ids of a text; plain: without the tokens that the tokenizer puts around. The model has
// a tokenizer.
func (m *Model) Encode(text string, plain bool) ([]int32, error) {
	if plain {
		return tokenizer.AppendPlain(m.Tok, nil, text)
	}
	return m.Tok.Encode(text)
}

// ReadTemplate is the text of --chat-template's file.
func ReadTemplate(path string) (string, error) {
	text, err := chat.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("--chat-template: %w", err)
	}
	return text, nil
}
