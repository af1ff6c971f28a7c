package training

import (
	"monotron/megatron/inference"
)

// samples continues each --sample-prompt with the model as it is.
func (r *Run) samples(where string) error {
	if len(r.Config.SamplePrompt) == 0 {
		return nil
	}
	g := &inference.Generator{Device: r.device, Stage: r.Engine.Stage, DType: r.Engine.dtype, Vocab: r.Config.Model.VocabSize, MaxContext: r.Config.SeqLength}
	for _, prompt := range r.Config.SamplePrompt {
		ids, err := r.Tokenizer.Encode(prompt)
		if err != nil {
			return err
		}
		out, err := g.Sample(ids, inference.SampleOptions{MaxNew: min(r.Config.SampleTokens, r.Config.SeqLength-len(ids)), Temperature: 0.8, TopK: 40,
			Stop: int32(r.Tokenizer.EOD()), Seed: uint64(r.Config.Seed)})
		if err != nil {
			return err
		}
		r.log.note("sample at %s: %q", where, prompt+r.Tokenizer.Decode(out.IDs))
	}
	return nil
}
