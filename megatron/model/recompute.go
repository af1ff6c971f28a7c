package model

import (
	"fmt"
	"strings"

	"monotron/csrc/device"
)

// Recomputed says what a layer does not keep between forward and backward
// (--recompute-granularity selective). Core attention is not listed: it never
// keeps scores.
type Recomputed struct {
	MLP   bool // what lies between fc1 and fc2
	Norms bool // the normed inputs

	Mixture    bool // all that a mixture of experts keeps, its router's choice too
	ExpertActs bool // the experts' activations
	Shared     bool // what the shared expert keeps
}

// Recompute is activation recomputation (Korthikanti et al., arXiv 2205.05198).
type Recompute struct {
	Granularity string   // "", "selective", "full"
	Method      string   // of full: "uniform" (segments of NumLayers), "block" (the first NumLayers)
	NumLayers   int      // --recompute-num-layers
	Modules     []string // of selective: of those that Modules names
}

// modules are what --recompute-modules can name.
var modules = []struct {
	name       string
	experts    bool // a mixture of experts alone has it
	recomputed func(*Recomputed)
}{
	{"core_attn", false, func(*Recomputed) {}}, // nothing to recompute: scores are never stored
	{"mlp", false, func(f *Recomputed) { f.MLP = true }},
	{"layernorm", false, func(f *Recomputed) { f.Norms = true }},
	{"moe", true, func(f *Recomputed) { f.Mixture = true }},
	{"moe_act", true, func(f *Recomputed) { f.ExpertActs = true }},
	{"shared_experts", true, func(f *Recomputed) { f.Shared = true }},
}

// Modules are the names of modules that can be recomputed: of every model, and of mixtures of experts alone.
func Modules() (every, mixtures []string) {
	for _, m := range modules {
		if m.experts {
			mixtures = append(mixtures, m.name)
		} else {
			every = append(every, m.name)
		}
	}
	return every, mixtures
}

func (r Recompute) recomputed() (f Recomputed, err error) {
	if r.Granularity != "selective" {
		return f, nil
	}
	for _, name := range r.Modules {
		known := false
		for _, m := range modules {
			if m.name == name {
				m.recomputed(&f)
				known = true
			}
		}
		if !known {
			every, mixtures := Modules()
			return f, fmt.Errorf("--recompute-modules %s is unknown; choose from %s, or in models with experts also from %s", name, strings.Join(every, ", "), strings.Join(mixtures, ", "))
		}
	}
	return f, nil
}

// segment is a run of layers [from, to) of a stage; a recomputed one keeps only
// its input.
type segment struct {
	from, to int
	again    bool
	cut      bool // the input is kept in pieces over the tensor-parallel ranks
}

// segments cuts a stage's layers; distribute: see Parallel.DistributeSaved.
func (r Recompute) segments(layers int, distribute bool) []segment {
	var cs []segment
	for at := 0; at < layers; {
		c := segment{from: at, to: at + 1}
		if r.Granularity == "full" {
			c.again = r.Method == "uniform" || at < r.NumLayers
			if r.Method == "uniform" {
				c.to = min(layers, at+max(1, r.NumLayers))
			}
		}
		c.cut = c.again && distribute
		cs = append(cs, c)
		at = c.to
	}
	return cs
}

// kept is a tensor [tokens, h] that backward reads: uncut, or in equal stretches,
// one a tensor-parallel rank.
type kept struct {
	uncut   Tensor
	stretch Tensor // this rank's; none: it is uncut
	shape   [2]int64
}

// cut keeps this rank's stretch of x, which is the same on all ranks, and frees x.
// What cannot be cut evenly stays uncut.
func (s *Stage) cut(p *Pass, bounds *device.Scope, x Tensor) kept {
	n := int64(s.region.Size())
	if x.Len()%n != 0 {
		return kept{uncut: x}
	}
	k := kept{stretch: bounds.Alloc(x.DType, x.Len()/n), shape: [2]int64{x.Shape[0], x.Shape[1]}}
	p.D.Copy(k.stretch, x.Reshape(x.Len()).Slice(0, k.stretch.Len()*int64(s.region.Rank()), k.stretch.Len()))
	bounds.Free(x)
	return k
}

// join is what was kept, uncut, in memory of tmp where it was cut.
func (s *Stage) join(tmp *device.Scope, k kept) (Tensor, error) {
	if !k.stretch.Given() {
		return k.uncut, nil
	}
	x := tmp.Alloc(k.stretch.DType, k.shape[0], k.shape[1])
	return x, s.region.AllGather(x, k.stretch).Wait()
}
