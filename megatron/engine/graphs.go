package engine

import (
	"cmp"
	"fmt"

	"monotron/csrc/device"
)

// graphs are what a rank that is alone does the same way in every step, as graphs of the
// device: forward and backward of a micro-batch, whose numbers come into the same tensors
// each time, and the update. Nil: all is enqueued op by op.
type graphs struct {
	micro    *device.Graph
	update   *device.Graph // the optimizer's
	in       inputs
	shape    string // of the first micro-batch
	varied   bool   // another has another
	news     []string
	reported bool // what became of the graphs
}

// suits reports whether the micro-batches have the shape of the first one ever.
func (g *graphs) suits(micros []*Micro) bool {
	if g == nil {
		return false
	}
	for _, m := range micros {
		shape := fmt.Sprint(len(m.Tokens), len(m.Tokens[0]), m.DocStart != nil)
		if g.shape == "" {
			g.shape = shape
		}
		if shape != g.shape {
			if !g.varied {
				g.news = append(g.news, fmt.Sprintf("micro-batches of %d samples of %d tokens do not use a CUDA graph: the first micro-batch had a different shape", len(m.Tokens), len(m.Tokens[0])))
			}
			g.varied = true
			return false
		}
	}
	return true
}

// tell notes what became of the graphs, once that is known.
func (g *graphs) tell() {
	micro, update := g.micro, g.update
	switch {
	case g.reported:
		return
	case micro.Err != nil || update.Err != nil:
		g.news = append(g.news, fmt.Sprintf("CUDA graphs are not used: %v", cmp.Or(micro.Err, update.Err)))
	case micro.Runs > 0 && update.Runs > 0:
		g.news = append(g.news, fmt.Sprintf("CUDA graphs: a micro-batch is one launch of %d kernels, and the update is one launch of %d kernels", micro.Nodes, update.Nodes))
	default:
		return
	}
	g.reported = true
}
