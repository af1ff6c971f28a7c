package model

import "fmt"

// Forget says what a layer does not keep between forward and backward
// (--recompute-granularity selective). Core attention is not listed: it never
// keeps scores.
type Forget struct {
	MLP   bool // what lies between fc1 and fc2
	Norms bool // the normed inputs
}

// Recompute is activation recomputation (Korthikanti et al., arXiv 2205.05198).
type Recompute struct {
	Granularity string   // "", "selective", "full"
	Method      string   // of full: "uniform" (chunks of NumLayers), "block" (the first NumLayers)
	NumLayers   int      // --recompute-num-layers
	Modules     []string // of selective: core_attn, mlp, layernorm
}

func (r Recompute) forget() (f Forget, err error) {
	if r.Granularity != "selective" {
		return f, nil
	}
	for _, m := range r.Modules {
		switch m {
		case "core_attn": // nothing to forget: scores are never stored
		case "mlp":
			f.MLP = true
		case "layernorm":
			f.Norms = true
		default:
			return f, fmt.Errorf("--recompute-modules %s: this model has core_attn, mlp and layernorm", m)
		}
	}
	return f, nil
}

// chunk is a run of layers [from, to) of a stage; a recomputed one keeps only
// its input.
type chunk struct {
	from, to int
	again    bool
}

func (r Recompute) chunks(layers int) []chunk {
	var cs []chunk
	for at := 0; at < layers; {
		c := chunk{from: at, to: at + 1}
		if r.Granularity == "full" {
			c.again = r.Method == "uniform" || at < r.NumLayers
			if r.Method == "uniform" {
				c.to = min(layers, at+max(1, r.NumLayers))
			}
		}
		cs = append(cs, c)
		at = c.to
	}
	return cs
}
