package arguments

import (
	"slices"

	"monotron/megatron/spec"
)

// deriveMamba completes layers with state-space scans, where they are asked for.
func (p *parser) deriveMamba() {
	m, r := &p.Model, &p.Raw
	if r.MambaFreq == "" && !slices.Contains(r.Hybrid.Scans, true) {
		return
	}
	s := r.Mamba
	if s.Heads == 0 && s.HeadDim > 0 {
		if s.Heads = 2 * m.HiddenSize / s.HeadDim; s.Heads*s.HeadDim != 2*m.HiddenSize {
			p.clash("hidden-size mamba-head-dim mamba-num-heads", "twice --hidden-size %d is not a multiple of --mamba-head-dim %d; change one, or give --mamba-num-heads", m.HiddenSize, s.HeadDim)
		}
		s.Heads = max(1, s.Heads)
	}
	if s.Layers = r.Hybrid.Scans; s.Layers == nil {
		var err error
		if s.Layers, err = windowLayers(r.MambaFreq, m.NumLayers); err != nil {
			p.clash("mamba-layer-freq", "--mamba-layer-freq %s: %v", r.MambaFreq, err)
		}
	}
	s.ConvBias = !r.NoMambaConvBias
	p.mambaClashes(&s)
	m.Mamba = &s
}

// mambaClashes reports settings that scans cannot be combined with.
func (p *parser) mambaClashes(s *spec.Mamba) {
	m, flag := &p.Model, p.Raw.listed()
	switch {
	case m.LinearBias:
		p.clash(flag+" disable-bias-linear", "--%s needs --disable-bias-linear, because projections of state-space scans have no biases", flag)
	case m.Normalization != spec.RMSNorm:
		p.clash(flag+" normalization", "--%s needs --normalization RMSNorm", flag)
	case p.Raw.HybridPattern == "" && (m.Delta != nil || m.Conv != nil || m.Latent != nil):
		p.clash("mamba-layer-freq experimental-attention-variant short-conv-freq multi-latent-attention", "--mamba-layer-freq cannot be combined with --experimental-attention-variant, --short-conv-freq or --multi-latent-attention; leave these out")
	case s.DtMax > 0 && s.DtMax < s.DtMin:
		p.clash("mamba-dt-min mamba-dt-max", "--mamba-dt-max %g is below --mamba-dt-min %g; change one", s.DtMax, s.DtMin)
	}
	const most = 1 << 45
	if n := float64(m.NumLayers) * (float64(s.Rows())*float64(m.HiddenSize) + float64(s.Inner())*float64(s.StateDim)); n > most {
		p.clash("num-layers hidden-size mamba-num-heads mamba-head-dim mamba-num-groups mamba-state-dim",
			"the state-space scans would have about %.1e weights and states; no machine can store that; reduce --num-layers %d, --hidden-size %d, --mamba-num-heads %d, --mamba-head-dim %d, --mamba-num-groups %d or --mamba-state-dim %d",
			n, m.NumLayers, m.HiddenSize, s.Heads, s.HeadDim, s.Groups, s.StateDim)
	}
	if text := s.Uncut(max(1, p.Layout.TP), max(1, p.Layout.CP)); text != "" {
		p.clash("mamba-num-heads mamba-num-groups tensor-model-parallel-size context-parallel-size", "%s", text)
	}
	if f := p.Checkpoint.Format; f == "torch" || f == "torch_dist" {
		p.clash(flag+" ckpt-format", "--ckpt-format %s cannot store state-space scans; leave --ckpt-format out (`monotron convert --to hf` writes the result as a Hugging Face folder)", f)
	}
}
