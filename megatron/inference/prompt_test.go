package inference

import (
	"math"
	"strings"
	"testing"

	"monotron/internal/exitcode"
)

// Claim (docs/generate.md): a prompt that leaves no position is refused by its own length and by how much it is too long.
func TestPromptTooLong(t *testing.T) {
	g := &Generator{Vocab: 9, MaxContext: 8}
	for _, c := range []struct {
		prompt, more int
		says         string
	}{
		{7, 1, ""}, {8, 0, ""},
		{7, 2, "7 prompt tokens and 2 tokens to generate exceed the model's 8 positions; generate at most 1"},
		{8, 128, "the prompt has 8 tokens, but the model has only 8 positions for the prompt and its continuation; shorten the prompt by at least 1 tokens"},
		{20, math.MaxInt, "the prompt has 20 tokens, but the model has only 8 positions for the prompt and its continuation; shorten the prompt by at least 13 tokens"},
		{9, 0, "shorten the prompt by at least 1 tokens"},
	} {
		err := g.CheckPrompt(make([]int32, c.prompt), c.more)
		if (err == nil) != (c.says == "") || err != nil && (exitcode.CodeOf(err) != exitcode.Usage || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%d and %d: %v", c.prompt, c.more, err)
		}
	}
}
