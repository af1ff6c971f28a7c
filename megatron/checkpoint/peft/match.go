package peft

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint/hf"
	"monotron/megatron/spec"
)

// usual are the modules that PEFT adapts in a family where no target is named.
var usual = map[string][]string{hf.GPT2: {"c_attn"}, hf.GPTNeoX: {"query_key_value"}, hf.Bloom: {"query_key_value"}, hf.Phi3: {"qkv_proj"}, hf.NemotronH: {"q_proj", "k_proj", "v_proj", "o_proj"}}

// refused are modules of a family that PEFT takes no adapters on, as kernels of Mamba read their weights alone.
var refused = map[string]string{hf.Mamba2: "out_proj", hf.NemotronH: "out_proj"}

// adaptable are the ends of the names of our linear layers that take adapters.
var adaptable = []string{".self_attention.linear_qkv", ".self_attention.linear_proj", ".mixer.in_proj", ".mixer.out_proj", ".mlp.linear_fc1", ".mlp.linear_fc2", ".mlp.shared_experts.linear_fc1", ".mlp.shared_experts.linear_fc2"}

// Resolve finds the modules of m that c names, by PEFT's rules. Targets that match nothing, and
// modules that cannot have an adapter here, are refused by name.
func Resolve(m *spec.Model, family string, c Config) (list []spec.Adapter, err error) {
	if m.LayersDiffer() {
		return nil, exitcode.Errorf(exitcode.Usage, "adapters cannot be combined with layers of different shapes (Gemma 4); train all weights")
	}
	mapping, err := mappingOf(m, family)
	if err != nil {
		return nil, err
	}
	family = mapping.Family
	// Without targets, PEFT's usual ones of the family.
	if c.Targets.List == nil && !c.Targets.Given() && !c.Parameters.Given() {
		if c.Targets.List = usual[family]; c.Targets.List == nil {
			c.Targets.List = []string{"q_proj", "v_proj"}
		}
	}
	r := resolver{c: c, m: m, family: family, used: map[string]bool{}}
	// Every module is tried; a tied output layer is one of its own name.
	modules := mapping.Modules()
	if m.Tied {
		modules = append(modules, hf.Module{Name: "lm_head", Linear: "output_layer", Table: true})
	}
	for _, module := range modules {
		a, err := r.adapter(module)
		if err != nil {
			return nil, exitcode.With(exitcode.Usage, err)
		}
		if a != nil {
			list = append(list, *a)
		}
	}
	return list, exitcode.With(exitcode.Usage, r.check(list, modules))
}

// mappingOf is the mapping of m's weights to the names of a family, "" for the one that can express it.
func mappingOf(m *spec.Model, family string) (*hf.Mapping, error) {
	bare := *m
	bare.Adapters, bare.Retrained = nil, nil
	if family == "" {
		var err error
		if family, err = hf.ModuleFamily(&bare); err != nil {
			return nil, fmt.Errorf("adapters need the module names of a Hugging Face family: %w", err)
		}
	}
	bare.NormOnePlus = bare.NormOnePlus && hf.Expresses(family, &bare) == nil // an export has plain norms then: hf.PlainNorms
	return hf.NewMapping(&bare, family)
}

// resolver matches names.
type resolver struct {
	c      Config
	m      *spec.Model
	family string
	used   map[string]bool // targets that matched
}

// refused reports a module that PEFT takes no adapters on.
func (r *resolver) refused(name string) bool {
	end := refused[r.family]
	return end != "" && strings.HasSuffix(name, "."+end)
}

// all reports whether every linear layer is a target.
func (r *resolver) all() bool {
	t := r.c.Targets
	return t.Pattern == AllLinear || len(t.List) == 1 && t.List[0] == AllLinear
}

// adapter is that of a module; nil: it has none.
func (r *resolver) adapter(m hf.Module) (*spec.Adapter, error) {
	ours := slices.ContainsFunc(adaptable, func(end string) bool { return strings.HasSuffix(m.Linear, end) })
	latent := r.m.Latent != nil && strings.Contains(m.Linear, ".self_attention.") // its layers take no adapters
	ours = ours && !latent
	targeted, err := r.targets(m, ours)
	if m.Experts > 0 {
		targeted, err = r.parameter(m)
	}
	if err != nil || !targeted {
		return nil, err
	}
	switch {
	case m.Table:
		if err := r.table(m); err != nil {
			return nil, err
		}
	case m.Experts > 0:
		if err := r.mixture(m); err != nil {
			return nil, err
		}
	case latent:
		return nil, fmt.Errorf("target %s: layers of multi-latent attention cannot have an adapter; leave this module out of the target modules", m.Name)
	case !ours:
		return nil, fmt.Errorf("target %s: only embeddings, output layers and the linear layers of attention, state-space scans and MLPs can have adapters; leave this module out of the target modules", m.Name)
	}
	if r.refused(m.Name) {
		return nil, fmt.Errorf("target %s: PEFT does not support adapters on %s of %s models; leave this module out of the target modules", m.Name, refused[r.family], r.family)
	}
	rank, err := number(r.c.Ranks, m.Name, float64(r.c.R))
	if err != nil {
		return nil, err
	}
	alpha, err := number(r.c.Alphas, m.Name, r.c.Alpha)
	if err != nil {
		return nil, err
	}
	if rank < 1 || rank != math.Trunc(rank) || rank > 1<<16 {
		return nil, fmt.Errorf("the rank of %s is %g; it must be an integer from 1 to 65536", m.Name, rank)
	}
	scale := alpha / rank
	if r.c.RSLoRA {
		scale = alpha / math.Sqrt(rank)
	}
	if r.c.DoRA && r.c.Dropout > 0 {
		return nil, fmt.Errorf("DoRA with a dropout of %g is not supported; set the dropout to 0", r.c.Dropout)
	}
	a := &spec.Adapter{Linear: m.Linear, Module: m.Name, Out: m.Out, In: m.In, Rank: int(rank), Scale: scale, Dropout: r.c.Dropout, Magnitude: r.c.DoRA, Rows: m.Rows, Experts: m.Experts}
	if m.Table && m.Linear != outputLayer { // PEFT's input is the id
		a.Table, a.In, a.Out, a.Rows, a.Dropout = true, m.Out, m.In, nil, 0
	}
	return a, nil
}

const outputLayer = "output_layer"

// table refuses adapters on an embedding or output layer that cannot have one.
func (r *resolver) table(m hf.Module) error {
	switch {
	case r.m.Tied:
		return fmt.Errorf("target %s: the embedding and the output layer of this model are one weight, so an adapter on one of them could not be merged; leave this module out of the target modules", m.Name)
	case r.c.DoRA:
		return fmt.Errorf("target %s: DoRA on embeddings and output layers is not supported; leave this module out of the target modules, or leave --use-dora out", m.Name)
	case r.m.MTP != nil:
		return fmt.Errorf("target %s: adapters on embeddings and output layers cannot be combined with multi-token prediction; leave this module out of the target modules", m.Name)
	}
	return nil
}

// mixture refuses adapters on experts that cannot have one, as PEFT does.
func (r *resolver) mixture(m hf.Module) error {
	switch {
	case m.Conv1D:
		return fmt.Errorf("target %s: experts that are stored [in, out] (GPT-OSS) cannot have an adapter; name other target modules", m.Name)
	case r.c.DoRA || r.c.Dropout > 0:
		return fmt.Errorf("target %s: experts support neither DoRA nor dropout, as in PEFT; leave DoRA and dropout out, or name only target modules of attention", m.Name)
	}
	return nil
}

// parameter reports whether the experts of a layer are to have an adapter.
func (r *resolver) parameter(m hf.Module) (bool, error) {
	if r.all() {
		return true, nil
	}
	return r.matches(r.c.Parameters, m.Name)
}

// targets reports whether the module is to have an adapter.
func (r *resolver) targets(m hf.Module, linear bool) (bool, error) {
	t := r.c.Targets
	if m.Experts > 0 || r.saves(m.Name) {
		return false, nil
	}
	if r.all() {
		r.used[AllLinear] = true
		if m.Table || strings.HasSuffix(m.Linear, ".mlp.router") || strings.HasSuffix(m.Linear, ".mixer.conv1d") || strings.HasSuffix(m.Linear, "_latent_proj") || r.refused(m.Name) {
			return false, nil
		}
		if !linear {
			return false, fmt.Errorf("target %s: adapters on layers of multi-latent attention, gated delta nets and convolutions are not supported; name other target modules", m.Name)
		}
	} else if is, err := r.matches(t, m.Name); !is || err != nil {
		return false, err
	}
	if out, err := (&resolver{used: map[string]bool{}}).matches(r.c.Exclude, m.Name); out || err != nil {
		return false, err
	}
	return r.inLayer(m.Name)
}

// matches is PEFT's rule: a pattern matches all of the name, a name in a list its end.
func (r *resolver) matches(t Names, name string) (bool, error) {
	if t.Pattern != "" {
		replacing, err := compile("^(?:" + t.Pattern + ")$")
		if err != nil {
			return false, err
		}
		is := replacing.MatchString(name)
		r.used[t.Pattern] = r.used[t.Pattern] || is
		return is, nil
	}
	found := false
	for _, one := range t.List {
		if name == one || strings.HasSuffix(name, "."+one) {
			found, r.used[one] = true, true
		}
	}
	return found, nil
}

func compile(pattern string) (*regexp.Regexp, error) {
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, fmt.Errorf("pattern %.80q: %w; lookaround and back references are not supported", pattern, err)
	}
	return re, nil
}

// inLayer reports whether the module's layer is one of layers_to_transform.
func (r *resolver) inLayer(name string) (bool, error) {
	if r.c.Layers == nil {
		return true, nil
	}
	patterns := r.c.LayerNames.List
	if r.c.LayerNames.Pattern != "" {
		patterns = []string{r.c.LayerNames.Pattern}
	}
	if len(patterns) == 0 {
		patterns = []string{`[^.]*`}
	}
	for _, p := range patterns {
		re, err := compile(`^.*\.` + p + `\.(\d+)\.`)
		if err != nil {
			return false, err
		}
		if found := re.FindStringSubmatch(name); found != nil {
			layer, err := strconv.Atoi(found[1])
			return err == nil && slices.Contains(r.c.Layers, layer), nil
		}
	}
	return false, nil
}

// compiled matches the complete name of a module.
func (p *Pattern) compiled() (*regexp.Regexp, error) {
	return compile(`^(?:.*\.)?(?:` + p.Name + `)$`)
}

// number is the first pattern's that matches the end of a name, else the usual one.
func number(patterns Patterns, name string, otherwise float64) (float64, error) {
	for _, p := range patterns {
		re, err := p.compiled()
		if err != nil {
			return 0, err
		}
		if re.MatchString(name) {
			return p.Value, nil
		}
	}
	return otherwise, nil
}

// Idle is the first pattern that decides the number of none of the adapters, "" if there is none.
func (p Patterns) Idle(list []spec.Adapter) (string, error) {
	used := make([]bool, len(p))
	for _, a := range list {
		for i, one := range p {
			re, err := one.compiled()
			if err != nil {
				return "", err
			}
			if re.MatchString(a.Module) {
				used[i] = true
				break
			}
		}
	}
	if i := slices.Index(used, false); i >= 0 {
		return p[i].Name, nil
	}
	return "", nil
}

// check refuses targets that match no module.
func (r *resolver) check(list []spec.Adapter, modules []hf.Module) error {
	// The last parts of modules' names, for the message.
	names := map[string]bool{}
	for _, m := range modules {
		if m.Experts > 0 {
			continue
		}
		names[m.Name[strings.LastIndexByte(m.Name, '.')+1:]] = true
	}
	var last []string
	for n := range names {
		last = append(last, n)
	}
	slices.Sort(last)
	// Everything that was named has matched something.
	for _, t := range append(r.c.Targets.List, r.c.Targets.Pattern) {
		if t != "" && !r.used[t] {
			return fmt.Errorf("target module %.80q matches no module of the model; the names of modules end with %s", t, strings.Join(last, ", "))
		}
	}
	for _, t := range r.c.Parameters.List {
		if !r.used[t] {
			return fmt.Errorf("target parameter %.80q matches no experts of the model; the parameters of experts are mlp.experts.gate_up_proj and mlp.experts.down_proj", t)
		}
	}
	if len(list) == 0 {
		return fmt.Errorf("no layer is left for an adapter; check layers_to_transform and exclude_modules")
	}
	return nil
}
