package training

import (
	"monotron/internal/exitcode"
	"monotron/megatron/inference"
	"monotron/megatron/telemetry"
	"monotron/mpu/topology"
)

// checkPrompts finds out before training whether each --sample-prompt is a text
// that the model can continue.
func (r *Run) checkPrompts() error {
	for _, prompt := range r.Config.SamplePrompt {
		ids, err := r.Tokenizer.Encode(prompt)
		switch {
		case err != nil:
			return exitcode.Errorf(exitcode.Usage, "--sample-prompt %q: %w", prompt, err)
		case len(ids) == 0:
			return exitcode.Errorf(exitcode.Usage, "--sample-prompt %q has no tokens", prompt)
		case len(ids) >= r.Config.SeqLength:
			return exitcode.Errorf(exitcode.Usage, "--sample-prompt %q has %d tokens, which leaves no space for generated tokens within --seq-length %d", prompt, len(ids), r.Config.SeqLength)
		}
		for _, id := range ids {
			if id < 0 || int(id) >= r.Config.Model.VocabSize {
				return exitcode.Errorf(exitcode.Usage, "--sample-prompt %q: token %d is outside the vocabulary of %d", prompt, id, r.Config.Model.VocabSize)
			}
		}
		if left := r.Config.SeqLength - len(ids); left < r.Config.SampleTokens {
			r.log.note("--sample-prompt %q has %d tokens, so only %d of --sample-tokens %d fit into --seq-length %d", prompt, len(ids), left, r.Config.SampleTokens, r.Config.SeqLength)
		}
	}
	return nil
}

// samples continues each --sample-prompt with the model as it is. The ranks of
// every copy of the model do so together, and all have the texts.
func (r *Run) samples() (written []telemetry.Sample, err error) {
	if len(r.Config.SamplePrompt) == 0 {
		return nil, nil
	}
	release, err := r.Engine.Optimizer.Gather()
	if err != nil {
		return nil, err
	}
	defer release()
	g := &inference.Generator{Device: r.device, Stages: r.Engine.Stages, DType: r.Engine.DType, Vocab: r.Config.Model.VocabSize, MaxContext: r.Config.SeqLength,
		Hidden: int64(r.Config.Model.HiddenSize)}
	if r.rank.Sizes.CP > 1 && !r.Config.Model.KeepsState() { // else each reads the complete prompt
		g.Context = r.rank.Groups[topology.CP]
	}
	if stages := r.rank.Groups[topology.PP]; stages.Size() > 1 {
		g.Pipeline = stages
	}
	for _, prompt := range r.Config.SamplePrompt {
		ids, err := r.Tokenizer.Encode(prompt)
		if err != nil {
			return written, err
		}
		out, err := g.Sample(ids, inference.SampleOptions{MaxNew: min(r.Config.SampleTokens, r.Config.SeqLength-len(ids)), Ends: []int32{int32(r.Tokenizer.EOD())},
			Sampling: inference.Sampling{Temperature: 0.8, TopK: 40, Seed: uint64(r.Config.Seed)}})
		if err != nil {
			return written, err
		}
		written = append(written, telemetry.Sample{Prompt: prompt, Text: r.Tokenizer.Decode(append(ids, out.IDs...))})
	}
	return written, nil
}
