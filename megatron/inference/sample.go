package inference

import (
	"slices"

	"monotron/megatron/model"
)

// SampleOptions say how a text continues, and when it ends.
type SampleOptions struct {
	Sampling
	MaxNew int
	Ends   []int32        // ids that end the sequence
	Emit   func(id int32) // called with each token as it comes; may be nil
}

// Sampled is a continuation and the log-probability of each of its tokens.
type Sampled struct {
	IDs      []int32
	LogProbs []float64
}

// Sample continues prompt.
func (g *Generator) Sample(prompt []int32, o SampleOptions) (*Sampled, error) {
	if err := g.CheckPrompt(prompt, o.MaxNew); err != nil {
		return nil, err
	}
	s := g.newSession(len(prompt)+o.MaxNew, 1)
	defer s.close()
	// feed: what the cache does not have yet, the prompt, then the last token.
	ids := append([]int32(nil), prompt...)
	result := &Sampled{}
	feed := prompt
	for n := range o.MaxNew {
		w := wish{Sampling: &o.Sampling, edits: o.edits(ids, len(prompt)), nth: n, about: -1}
		var tokens []Token
		var bad []error
		// One pass, and a token chosen from the logits of its last row.
		err := s.extend([][]int32{feed}, func(_ int, logits model.Tensor) (err error) {
			tokens, bad, err = g.choose(logits, []wish{w})
			return err
		})
		if err == nil {
			err = bad[0]
		}
		if err != nil {
			return nil, err
		}
		id := tokens[0].ID
		result.IDs, result.LogProbs = append(result.IDs, id), append(result.LogProbs, tokens[0].LogProb)
		if o.Emit != nil {
			o.Emit(id)
		}
		if slices.Contains(o.Ends, id) {
			break
		}
		ids = append(ids, id)
		feed = []int32{id}
	}
	return result, nil
}
