package plan

import (
	"fmt"
	"strings"

	"monotron/mpu/health"
)

// Point is a moment of a rank's run: phase, step, micro-batch and part of the model.
type Point struct {
	Phase  health.Phase
	Step   int64
	Micro  int    // of a pass, the first is 1; 0: none has begun
	Chunk  int    // of the rank's stage
	Chunks int    // that it has
	Unit   string // of the model: embedding, decoder.layers.3, head; "": none
}

// String says it as in "forward of micro-batch 3, layer 17"; both count from 0, as everywhere else.
func (p Point) String() string {
	if p.Micro == 0 {
		return map[health.Phase]string{health.Startup: "setup", health.Data: "start of a step", health.Reduce: "sum of the losses and gradients",
			health.Optimizer: "update", health.Eval: "evaluation"}[p.Phase]
	}
	text := fmt.Sprintf("%s of micro-batch %d", p.Phase, p.Micro-1)
	if p.Phase == health.Eval {
		text = fmt.Sprintf("evaluation, micro-batch %d", p.Micro-1)
	}
	if p.Chunks > 1 {
		text += fmt.Sprintf(", chunk %d", p.Chunk)
	}
	if layer, is := strings.CutPrefix(p.Unit, "decoder.layers."); is {
		layer, tile, _ := strings.Cut(layer, ".") // of a weight that is tiled
		return strings.TrimSuffix(text+", layer "+layer+", "+tile, ", ")
	}
	if p.Unit != "" {
		return text + ", " + p.Unit
	}
	return text
}
