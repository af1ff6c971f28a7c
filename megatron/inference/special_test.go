package inference

import (
	"testing"

	"monotron/tokenizer"
)

// Claim: with SkipSpecial a special token has no text, in the middle of a text and where it ends, unless a stop finds
// it; without, it has its own.
func TestSpecialTokensHaveNoText(t *testing.T) {
	tok, err := tokenizer.EmbeddedGPT2()
	if err != nil {
		t.Fatal(err)
	}
	const hi, there, special = 17250, 612, 50256
	for _, c := range []struct {
		skip  bool
		stops []string
		want  string
		ended Reason
	}{
		{true, nil, "Hi there", EndedByLength},
		{true, []string{" there!"}, "Hi there", EndedByLength},
		{true, []string{"<|endoftext|>"}, "Hi", EndedByStop},
		{false, nil, "Hi<|endoftext|> there<|endoftext|>", EndedByLength},
	} {
		s := newSequence(&Request{Prompt: []int32{hi}, MaxNew: 4, Stops: c.stops, Tokenizer: tok, SkipSpecial: c.skip}, func() {})
		var ended Reason
		for _, id := range []int32{hi, special, there, special} {
			if ended = s.add(Token{Choice: Choice{ID: id}}); ended != "" {
				break
			}
		}
		r, err := s.stream.Next(t.Context())
		text := ""
		for _, token := range r.Tokens {
			text += token.Text
		}
		if text += r.Rest; err != nil || text != c.want || ended != c.ended {
			t.Errorf("skip %v, stops %q: %q ended by %q, %v; want %q by %q", c.skip, c.stops, text, ended, err, c.want, c.ended)
		}
	}
}
