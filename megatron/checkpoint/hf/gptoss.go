package hf

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"monotron/internal/exitcode"
	"monotron/internal/safetensors"
	"monotron/megatron/spec"
)

// GPT-OSS keeps the experts of a layer in one tensor, [experts, in, out], with the gate's
// columns between those of the other half. Here each expert's part of it, a slab, is a tensor
// by itself, called name[expert].

func gptOSSAbsent(f *fields) {
	f.KVHeads, f.HeadDim, f.MaxPositions, f.RMSNormEps, f.ExpertsPerTok, f.SlidingWindow = number(8), number(64), number(131072), decimal(1e-5), number(4), number(128)
	f.AttentionBias, f.SwigluLimit, f.SwigluAlpha, f.RopeTheta = yes(true), decimal(7), decimal(1.702), decimal(150000)
	f.RouterAuxLoss = decimal(0.001)
}

// gptOSSRope is what its class has where rope_parameters are absent.
const gptOSSRope = `{"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": false}`

func (c *reading) gptOSS(f *fields) {
	m := c.Model
	c.ropeOfClass(f, gptOSSRope)
	c.decoder(f, false)
	if m.Activation != spec.Swiglu {
		c.fail("hidden_act %q is not supported; it must be silu (transformers' class ignores this key and always uses its own activation)", text(f.HiddenAct))
	}
	m.Activation, m.GateLimit, m.GateOffset, m.Sinks = spec.QuickGeglu, c.positive("swiglu_limit", f.SwigluLimit, 7), 1, true
	if alpha := f.SwigluAlpha; alpha != nil && *alpha != 1.702 {
		c.fail("swiglu_alpha %v is not supported; it must be 1.702", *alpha)
	}
	attention := given(f.AttentionBias, true)
	c.separateBiases(attention, attention, true)
	c.layerWindows(f, c.every(nil, 2))
	c.experts(f)
}

func gptOSSConfig(c map[string]any, m *spec.Model, positions int) {
	decoderConfig(c, m, positions)
	windowConfig(c, m, 128)
	put(c, "hidden_act", "silu", "attention_bias", m.QKVBias, "swiglu_limit", otherwise(m.GateLimit, 7), "swiglu_alpha", 1.702, "attention_dropout", 0.0)
	if e := m.Experts; e != nil {
		put(c, "num_local_experts", e.Num, "num_experts_per_tok", e.TopK, "experts_per_token", e.TopK, "intermediate_size", e.FFNHiddenSize, "output_router_logits", false)
		if len(e.AuxLossCoeff) > 0 {
			put(c, "router_aux_loss_coef", e.AuxLossCoeff[0])
		}
	}
}

// fusedExperts adds a layer's router and its experts' slabs.
func (mp *Mapping) fusedExperts(ours, theirs string) {
	m, e := mp.Model, mp.Model.Experts
	h, ffn := m.HiddenSize, e.FFNHiddenSize
	mp.linear(ours+"router", []string{theirs + "router"}, []int{e.Num}, h, true, false, nil)
	halves := func(r int64) (int, int64) { // gate and up in turn
		return 0, r%int64(ffn)*2 + r/int64(ffn)
	}
	for j := range e.Num {
		expert := fmt.Sprintf("%sexperts.local_experts.%d.", ours, j)
		mp.slab(expert+"linear_fc1.weight", theirs+"experts.gate_up_proj", j, halves, true, 2*ffn, h)
		mp.slab(expert+"linear_fc1.bias", theirs+"experts.gate_up_proj_bias", j, halves, false, 2*ffn)
		mp.slab(expert+"linear_fc2.weight", theirs+"experts.down_proj", j, nil, true, h, ffn)
		mp.slab(expert+"linear_fc2.bias", theirs+"experts.down_proj_bias", j, nil, false, h)
	}
}

// slab adds expert j's part of a fused tensor; shape is ours.
func (mp *Mapping) slab(global, name string, j int, rows func(int64) (int, int64), transposed bool, shape ...int) {
	stored := slices.Clone(shape)
	if transposed {
		slices.Reverse(stored)
	}
	mp.add(rule{global: global, shape: dims(shape), row: rows, sources: []Source{{Name: slabName(name, j), Shape: dims(stored), Transposed: transposed}}})
	mp.slabs[name] = append([]int64{int64(mp.Model.Experts.Num)}, dims(stored)...)
}

func slabName(name string, j int) string { return fmt.Sprintf("%s[%d]", name, j) }

var slabForm = regexp.MustCompile(`^(.+)\[(\d+)\]$`)

// slabOf takes a slab's name apart.
func slabOf(name string) (full string, j int64, is bool) {
	parts := slabForm.FindStringSubmatch(name)
	if parts == nil {
		return name, 0, false
	}
	j, err := strconv.ParseInt(parts[2], 10, 32)
	return parts[1], j, err == nil
}

// Stored lists all of their tensors as files hold them, in the order of the model: slabs
// together.
func (mp *Mapping) Stored() []Source {
	var list []Source
	for _, s := range mp.Sources() {
		full, j, slab := slabOf(s.Name)
		switch {
		case !slab:
			list = append(list, s)
		case j == 0:
			list = append(list, Source{Name: full, Shape: mp.slabs[full]})
		}
	}
	return list
}

// slabbed shows fused tensors of a folder slab by slab.
type slabbed struct {
	Files
	fused *regexp.Regexp
}

// ofExperts are the tensors of GPT-OSS, Gemma 4 and Granite 4 that hold all experts of a layer.
var ofExperts = regexp.MustCompile(`\.experts\.(gate_up_proj|down_proj)(_bias)?$|\.block_sparse_moe\.(in|out)put_linear\.weight$`)

func (s slabbed) Names() (names []string) {
	for _, name := range s.Files.Names() {
		info, _ := s.Files.Info(name)
		if !s.fused.MatchString(name) || len(info.Shape) < 2 || info.Shape[0] > maxMixed {
			names = append(names, name)
			continue
		}
		for j := range info.Shape[0] {
			names = append(names, slabName(name, int(j)))
		}
	}
	return names
}

func (s slabbed) Info(name string) (safetensors.Info, bool) {
	full, j, slab := slabOf(name)
	info, ok := s.Files.Info(full)
	if !slab || !ok {
		return info, ok
	}
	if len(info.Shape) < 2 || j >= info.Shape[0] {
		return safetensors.Info{}, false
	}
	info.Name, info.Bytes, info.Shape = name, info.Bytes/info.Shape[0], info.Shape[1:]
	return info, true
}

func (s slabbed) ReadAt(name string, dst []byte, at int64) error {
	full, j, slab := slabOf(name)
	if slab {
		info, _ := s.Files.Info(full)
		at += j * (info.Bytes / info.Shape[0])
	}
	return s.Files.ReadAt(full, dst, at)
}

func (s slabbed) Where(name string) string {
	full, _, _ := slabOf(name)
	return s.Files.Where(full)
}

// readSlab reads a tensor of theirs, which may be a slab of a tensor that read returns.
func readSlab[T float32 | float64](name string, read func(name string) ([]T, []int64, error)) ([]T, []int64, error) {
	full, j, slab := slabOf(name)
	values, shape, err := read(full)
	if err != nil || !slab {
		return values, shape, err
	}
	if len(shape) < 2 || j >= shape[0] {
		return nil, nil, exitcode.Errorf(exitcode.BadData, "tensor %q has the shape %v, which does not contain expert %d", full, shape, j)
	}
	n := int64(len(values)) / shape[0]
	return values[j*n : (j+1)*n], shape[1:], nil
}

// scatterSlabs is ScatterRows of a fused tensor: experts [from, to).
func (mp *Mapping) scatterSlabs(dst []byte, name string, from, to, width int64, read ReadBox) error {
	n := elements(mp.slabs[name][1:]) * width
	if int64(len(dst)) != n*(to-from) {
		return exitcode.Errorf(exitcode.Internal, "internal error: tensor %q: %d bytes cannot be divided among %d experts; report this, and include the command line", name, len(dst), to-from)
	}
	for j := from; j < to; j++ {
		if err := mp.Scatter(dst[(j-from)*n:][:n], slabName(name, int(j)), width, read); err != nil {
			return err
		}
	}
	return nil
}
