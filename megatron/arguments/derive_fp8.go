package arguments

import "monotron/megatron/config"

// deriveFP8 checks which models and layouts --fp8-format is for.
func (p *parser) deriveFP8() {
	m, l := &p.Model, &p.Layout
	if p.FP8.Format == "" {
		p.FP8 = config.FP8{}
		return
	}
	// What the flags themselves need.
	if p.Precision == config.FP16 {
		p.clash("fp8-format fp16", "--fp8-format cannot be combined with --fp16; use --bf16")
	}
	// Models and runs whose products keep their operands.
	if m.Experts != nil && p.FP8.Recipe != "delayed" {
		p.clash("fp8-format fp8-recipe num-experts", "--fp8-recipe %s cannot be combined with --num-experts; use --fp8-recipe delayed", p.FP8.Recipe)
	}
	if m.Experts != nil && m.Experts.LatentSize > 0 {
		p.clash("fp8-format moe-latent-size", "--fp8-format cannot be combined with --moe-latent-size; leave --fp8-format out")
	}
	if m.Delta != nil || m.Conv != nil || m.Full != nil || m.KVShared > 0 || m.PerLayerInput > 0 {
		p.clash("fp8-format experimental-attention-variant short-conv-freq full-attention-kv-channels",
			"--fp8-format cannot be combined with gated delta nets, short convolutions or layers of different shapes; leave --fp8-format out")
	}
	if p.Adapter.Given() || p.Tuning.Samples() {
		p.clash("fp8-format lora-rank tuning", "--fp8-format cannot be combined with adapters or --tuning grpo; leave --fp8-format out")
	}
	if l.MemoryCentricTiling > 0 {
		p.clash("fp8-format memory-centric-tiling", "--memory-centric-tiling cannot be combined with --fp8-format, because tiles would split the blocks that share a scale; leave one out")
	}
	if p.FP8.Recipe == "delayed" {
		p.deriveDelayedFP8()
	}
	if p.FP8.FirstLastBF16 && p.FP8.AtStart+p.FP8.AtEnd > m.NumLayers {
		p.clash("num-layers-at-start-in-bf16 num-layers-at-end-in-bf16 num-layers", "--num-layers-at-start-in-bf16 %d and --num-layers-at-end-in-bf16 %d add up to more than the %d layers; lower one of them", p.FP8.AtStart, p.FP8.AtEnd, m.NumLayers)
	}
	// Layouts.
	if err := p.CheckFP8(); err != nil {
		p.clash("fp8-format tensor-model-parallel-size context-parallel-size hidden-size ffn-hidden-size seq-length", "%v", err)
	}
}

// deriveDelayedFP8 checks what scales that follow from earlier steps cannot stand with.
func (p *parser) deriveDelayedFP8() {
	if p.FP8.FirstLastBF16 {
		p.clash("fp8-recipe first-last-layers-bf16", "--first-last-layers-bf16 cannot be combined with --fp8-recipe delayed, as in Megatron-LM; use another recipe")
	}
	if loss := p.Tuning.Prefers(); loss != nil && loss.Reference {
		p.clash("fp8-recipe tuning preference-loss", "--fp8-recipe delayed cannot be combined with a preference loss that uses a reference model, because no step measures the scales of that model; use --fp8-recipe tensorwise")
	}
}
