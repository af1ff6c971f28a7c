package arguments

import (
	"cmp"
	"slices"
	"strings"

	"monotron/megatron/spec"
)

// hybridSpecs are Megatron's modules for models of --hybrid-layer-pattern, as --spec names them.
var hybridSpecs = [][]string{
	{"megatron.core.models.hybrid.hybrid_layer_specs", "hybrid_stack_spec"},
	{"megatron.core.models.mamba.mamba_layer_specs", "mamba_stack_spec"},
}

// deriveHybrid reads which layers there are, where each has one sublayer.
func (p *parser) deriveHybrid() {
	r, m := &p.Raw, &p.Model
	if known := slices.ContainsFunc(hybridSpecs, func(names []string) bool { return slices.Equal(names, r.Spec) }); r.Spec != nil && !(known && r.HybridPattern != "") {
		p.clash("spec hybrid-layer-pattern", "--spec %s: layer specs are Python modules, which are not supported; describe the model by flags, or give --spec %s with --hybrid-layer-pattern", strings.Join(r.Spec, " "), strings.Join(hybridSpecs[0], " "))
	}
	if r.HybridPattern == "" {
		if r.IsHybrid {
			p.clash("is-hybrid-model hybrid-layer-pattern", "--is-hybrid-model needs --hybrid-layer-pattern")
		}
		return
	}
	// Layers, with the bars that divide them over pipeline stages.
	stages := strings.Split(r.HybridPattern, "|")
	h, err := spec.ParseHybrid(strings.Join(stages, ""))
	if err != nil {
		p.clash("hybrid-layer-pattern", "--hybrid-layer-pattern %s: %v", r.HybridPattern, err)
		return
	}
	if n := len(h.Sublayers); m.NumLayers != n {
		if m.NumLayers > 0 {
			p.notice("--num-layers %d has no effect: --hybrid-layer-pattern has %d layers", m.NumLayers, n)
		}
		m.NumLayers = n
	}
	p.hybridStages(stages)
	r.Hybrid, m.Sublayers = h, h.Sublayers
	// Lists of layers that it replaces, and what it cannot be combined with.
	for flag, freq := range map[string]string{"mamba-layer-freq": r.MambaFreq, "linear-attention-freq": r.DeltaFreq, "short-conv-freq": r.ConvFreq} {
		if freq != "" {
			p.clash("hybrid-layer-pattern "+flag, "--hybrid-layer-pattern cannot be combined with --%s; leave one out", flag)
		}
	}
	if p.given("moe-layer-freq") {
		p.clash("hybrid-layer-pattern moe-layer-freq", "--hybrid-layer-pattern cannot be combined with --moe-layer-freq; leave one out")
	}
	switch mixed := slices.Contains(h.Experts, true); {
	case mixed && r.Experts.Num == 0:
		p.clash("hybrid-layer-pattern num-experts", "--hybrid-layer-pattern %s has E (experts); also give --num-experts", r.HybridPattern)
	case !mixed && r.Experts.Num > 0:
		p.clash("hybrid-layer-pattern num-experts", "--num-experts %d needs an E (experts) in --hybrid-layer-pattern %s; add it, or leave --num-experts out", r.Experts.Num, r.HybridPattern)
	}
	if f := p.Checkpoint.Format; f == "torch" || f == "torch_dist" {
		p.clash("hybrid-layer-pattern ckpt-format", "--ckpt-format %s cannot store layers with one sublayer; leave --ckpt-format out (`monotron convert --to hf` writes the result as a Hugging Face folder)", f)
	}
}

// hybridStages gives each pipeline stage, or chunk of one, the layers between two bars.
func (p *parser) hybridStages(stages []string) {
	l := &p.Layout
	if len(stages) == 1 {
		return
	}
	const others = "num-layers-per-virtual-pipeline-stage num-virtual-stages-per-pipeline-rank pipeline-model-parallel-layout decoder-first-pipeline-num-layers decoder-last-pipeline-num-layers account-for-embedding-in-pipeline-split account-for-loss-in-pipeline-split"
	for _, flag := range strings.Fields(others) {
		if p.given(flag) {
			p.clash("hybrid-layer-pattern "+flag, "--hybrid-layer-pattern with | cannot be combined with --%s; leave one out", flag)
			return
		}
	}
	if cmp.Or(l.PP, 1) == 1 {
		p.notice("| in --hybrid-layer-pattern has no effect with --pipeline-model-parallel-size 1")
		return
	}
	layers := make([]string, len(stages))
	for i, stage := range stages {
		layers[i] = strings.Repeat("t", len(stage))
	}
	l.StageString = "E" + strings.Join(layers, "|") + "L"
}

// hybridChecks reports what layers with one sublayer cannot be combined with, when the model is known.
func (p *parser) hybridChecks() {
	if flag := p.Model.LacksSublayers(); flag != "" {
		p.clash("hybrid-layer-pattern "+flag, "--hybrid-layer-pattern cannot be combined with --%s; leave one out", flag)
	}
}

// listed is the flag that says which layers have a scan.
func (r *raw) listed() string {
	if r.HybridPattern != "" {
		return "hybrid-layer-pattern"
	}
	return "mamba-layer-freq"
}
