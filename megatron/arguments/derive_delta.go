package arguments

import (
	"cmp"

	"monotron/megatron/spec"
)

// deriveDelta completes layers with gated delta nets, where they are asked for.
func (p *parser) deriveDelta() {
	m, r := &p.Model, &p.Raw
	if r.AttentionVariant == "" {
		return
	}
	d := r.Delta
	if d.ValueHeads%d.KeyHeads != 0 {
		p.clash("linear-num-value-heads linear-num-key-heads", "--linear-num-value-heads %d is not a multiple of --linear-num-key-heads %d; change one", d.ValueHeads, d.KeyHeads)
	}
	layers, err := windowLayers(r.DeltaFreq, m.NumLayers)
	switch {
	case r.DeltaFreq == "":
		p.clash("experimental-attention-variant linear-attention-freq", "--experimental-attention-variant %s needs --linear-attention-freq, which chooses the layers with linear attention; for example, 4 chooses three of every four layers", r.AttentionVariant)
	case err != nil:
		p.clash("linear-attention-freq", "--linear-attention-freq %s: %v", cmp.Or(r.DeltaFreq, `""`), err)
	}
	if tp, cp := max(1, p.Layout.TP), max(1, p.Layout.CP); cp > 1 && d.KeyHeads%tp == 0 && d.KeyHeads/tp%cp != 0 {
		p.clash("linear-num-key-heads context-parallel-size", "--context-parallel-size %d must divide the %d key heads that a tensor-parallel rank has in each gated delta net, because context-parallel ranks exchange these heads; use another size", cp, d.KeyHeads/tp)
	}
	if f := p.Checkpoint.Format; f == "torch" || f == "torch_dist" {
		p.clash("experimental-attention-variant ckpt-format", "--ckpt-format %s cannot store gated delta nets; leave --ckpt-format out (`monotron convert --to hf` writes the result as a Hugging Face folder)", f)
	}
	d.Layers = layers
	m.Delta = &d
}

// deriveConv completes layers with short convolutions, where they are asked for.
func (p *parser) deriveConv() {
	m, r := &p.Model, &p.Raw
	if r.ConvFreq == "" {
		return
	}
	layers, err := windowLayers(r.ConvFreq, m.NumLayers)
	switch {
	case err != nil:
		p.clash("short-conv-freq", "--short-conv-freq %s: %v", r.ConvFreq, err)
	case m.LinearBias:
		p.clash("short-conv-freq disable-bias-linear", "--short-conv-freq needs --disable-bias-linear, because projections of short convolutions have no biases")
	case m.Delta != nil || m.Latent != nil:
		p.clash("short-conv-freq experimental-attention-variant multi-latent-attention", "--short-conv-freq cannot be combined with --experimental-attention-variant or --multi-latent-attention; leave these out")
	}
	if ranks := max(1, p.Layout.TP) * max(1, p.Layout.CP); m.HiddenSize%ranks != 0 {
		p.clash("hidden-size short-conv-freq", "--hidden-size %d must be a multiple of %d (--tensor-model-parallel-size x --context-parallel-size), since these ranks share the channels of short convolutions; use other sizes", m.HiddenSize, ranks)
	}
	if f := p.Checkpoint.Format; f == "torch" || f == "torch_dist" {
		p.clash("short-conv-freq ckpt-format", "--ckpt-format %s cannot store short convolutions; leave --ckpt-format out (`monotron convert --to hf` writes the result as a Hugging Face folder)", f)
	}
	m.Conv = &spec.ShortConv{Taps: r.ConvTaps, Layers: layers}
}

// deriveFull completes attention that differs in layers without a window.
func (p *parser) deriveFull() {
	m, full := &p.Model, p.Raw.Full
	if full == (spec.FullAttention{}) {
		return
	}
	full.KVChannels, full.NumQueryGroups = cmp.Or(full.KVChannels, m.KVChannels), cmp.Or(full.NumQueryGroups, m.NumQueryGroups)
	switch tp := max(1, p.Layout.TP); {
	case p.Raw.WindowSkip == "":
		p.clash("full-attention-kv-channels full-attention-query-groups window-attn-skip-freq", "--full-attention-kv-channels and --full-attention-query-groups need --window-attn-skip-freq, which chooses the layers without a window")
	case m.NumAttentionHeads%full.NumQueryGroups != 0:
		p.clash("num-attention-heads full-attention-query-groups", "--num-attention-heads %d is not a multiple of --full-attention-query-groups %d; change one", m.NumAttentionHeads, full.NumQueryGroups)
	case m.NumQueryGroups != full.NumQueryGroups && (m.NumQueryGroups%tp != 0 || full.NumQueryGroups%tp != 0):
		p.clash("num-query-groups full-attention-query-groups tensor-model-parallel-size", "--tensor-model-parallel-size %d must divide --num-query-groups %d and --full-attention-query-groups %d; change one of them", tp, m.NumQueryGroups, full.NumQueryGroups)
	}
	m.Full = &full
}
