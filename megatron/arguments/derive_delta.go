package arguments

import "cmp"

// deriveDelta completes layers with gated delta nets, where they are asked for.
func (p *parser) deriveDelta() {
	m, r := &p.Model, &p.Raw
	if r.AttentionVariant == "" {
		return
	}
	d := r.Delta
	if d.ValueHeads%d.KeyHeads != 0 {
		p.clash("linear-num-value-heads linear-num-key-heads", "--linear-num-value-heads %d is not a multiple of --linear-num-key-heads %d", d.ValueHeads, d.KeyHeads)
	}
	layers, err := windowLayers(r.DeltaFreq, m.NumLayers)
	switch {
	case r.DeltaFreq == "":
		p.clash("experimental-attention-variant linear-attention-freq", "--experimental-attention-variant %s needs --linear-attention-freq, which says the layers; give 4 for three of four", r.AttentionVariant)
	case err != nil:
		p.clash("linear-attention-freq", "--linear-attention-freq %s: %v", cmp.Or(r.DeltaFreq, `""`), err)
	}
	if tp, cp := max(1, p.Layout.TP), max(1, p.Layout.CP); cp > 1 && d.KeyHeads%tp == 0 && d.KeyHeads/tp%cp != 0 {
		p.clash("linear-num-key-heads context-parallel-size", "--context-parallel-size %d: these ranks exchange the heads of gated delta nets, and cannot share the %d key heads of a rank evenly", cp, d.KeyHeads/tp)
	}
	if f := p.Checkpoint.Format; f == "torch" || f == "torch_dist" {
		p.clash("experimental-attention-variant ckpt-format", "--ckpt-format %s is not written for gated delta nets; leave it out, and convert the result to hf", f)
	}
	d.Layers = layers
	m.Delta = &d
}
