package schedule

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Ways to cut stages that Megatron-DeepSpeed knows (--pp-partition-method).
const (
	ByLayers              = "type:transformer"           // layers evenly; embedding and head are added
	ByLayersAndEmbeddings = "type:transformer|embedding" // embedding and head are one layer each, as BLOOM was trained
	Uniform               = "uniform"                    // the same: every part of the model counts one
	ByParameters          = "parameters"                 // the heaviest stage as light as possible
)

// maxParts bounds what a command line can ask for.
const maxParts = 100_000

// Split says how a model is cut over a pipeline: what the flags say.
type Split struct {
	Layers int // of the model
	Ahead  int // depths of multi-token prediction, whose layers stand with the head
	Stages int // --pipeline-model-parallel-size
	// Chunks are virtual stages a rank. Given at most one of VirtualStages
	// (--num-virtual-stages-per-pipeline-rank), LayersPerChunk
	// (--num-layers-per-virtual-pipeline-stage) and Layout; none: 1.
	VirtualStages, LayersPerChunk int
	First, Last                   int  // layers of the first and last stage, all chunks together; 0: as the others
	EmbeddingCounts, HeadCounts   bool // as a layer
	Layout                        string
	Method                        string    // "": by the fields above
	Weights                       []float64 // ByParameters: of embedding, each layer, head; nil: all alike
}

// Part is what one chunk of one stage holds of the model. It may be the embedding
// or the head alone.
type Part struct {
	Layers    []int // global numbers from 0, ascending
	Embedding bool  // word (and position) embedding
	Head      bool  // final norm, layers of multi-token prediction, output layer, loss
}

// Parts cuts the model: [stage][chunk]. The error lists every problem, each with
// near values that fit; errors.Join's Unwrap separates them.
func (s Split) Parts() ([][]Part, error) {
	p := &splitting{Split: s}
	counts := p.counts()
	if len(p.problems) > 0 {
		return nil, errors.Join(p.problems...)
	}
	return hold(counts, s.Stages), nil
}

// hold turns layers per virtual stage into parts.
func hold(counts []int, stages int) [][]Part {
	parts := make([][]Part, stages)
	next := 0
	for v, n := range counts {
		part := Part{Layers: make([]int, n), Embedding: v == 0, Head: v == len(counts)-1}
		for i := range part.Layers {
			part.Layers[i] = next
			next++
		}
		parts[v%stages] = append(parts[v%stages], part)
	}
	return parts
}

// splitting is a split being checked.
type splitting struct {
	Split
	problems []error
}

func (p *splitting) problem(format string, a ...any) {
	p.problems = append(p.problems, fmt.Errorf(format, a...))
}

// counts is the number of layers of every virtual stage; with problems noted it
// means nothing.
func (p *splitting) counts() []int {
	if p.Layers < 1 || p.Layers > maxParts || p.Stages < 1 || p.Stages > maxParts || p.VirtualStages > maxParts {
		p.problem("there are %d layers and %d pipeline stages; both numbers must be from 1 to %d", p.Layers, p.Stages, maxParts)
		return nil
	}
	p.exclusions()
	// A layout says it itself.
	if p.Layout != "" {
		return p.byLayout()
	}
	// Otherwise every stage has as many chunks.
	chunks := p.chunks()
	switch {
	case chunks > 1 && p.Stages < 2:
		p.problem("an interleaved schedule needs --pipeline-model-parallel-size of at least 2")
	case p.Stages*chunks > p.Layers+2:
		p.problem("%d pipeline stages of %d chunks are more than the parts of the model (%d layers, the embedding and the head): use --pipeline-model-parallel-size %d",
			p.Stages, chunks, p.Layers, max(1, (p.Layers+2)/chunks))
	}
	if len(p.problems) > 0 {
		return nil
	}
	switch {
	case p.Method != "":
		return p.byMethod(chunks)
	case p.First > 0 || p.Last > 0:
		return p.uneven(chunks)
	}
	return p.even(chunks)
}

// exclusions: ways to cut that contradict each other.
func (p *splitting) exclusions() {
	given := func(on ...bool) (n int) {
		for _, is := range on {
			if is {
				n++
			}
		}
		return n
	}
	ends, counted := p.First > 0 || p.Last > 0, p.EmbeddingCounts || p.HeadCounts
	if given(p.LayersPerChunk > 0, p.VirtualStages > 0, p.Layout != "") > 1 {
		p.problem("--num-layers-per-virtual-pipeline-stage, --num-virtual-stages-per-pipeline-rank and --pipeline-model-parallel-layout cannot be combined; give one")
	}
	if given(ends, counted, p.Layout != "", p.Method != "") > 1 {
		p.problem("--decoder-first-pipeline-num-layers or --decoder-last-pipeline-num-layers, --account-for-embedding-in-pipeline-split or " +
			"--account-for-loss-in-pipeline-split, --pipeline-model-parallel-layout and --pp-partition-method cannot be combined; give only one way to divide the layers")
	}
	if p.LayersPerChunk > 0 && (ends || p.Method != "") {
		p.problem("--num-layers-per-virtual-pipeline-stage needs an even split; use --num-virtual-stages-per-pipeline-rank")
	}
}

func (p *splitting) chunks() int {
	if p.LayersPerChunk == 0 {
		return max(1, p.VirtualStages)
	}
	units, row := p.units(), p.Stages*p.LayersPerChunk
	if units%row != 0 {
		p.problem("%d layers cannot be divided into %d pipeline stages with chunks of %d layers: %s", units, p.Stages, p.LayersPerChunk, use(
			near("--num-layers-per-virtual-pipeline-stage", p.LayersPerChunk, func(n int) bool { return units%(p.Stages*n) == 0 }, units), p.fitting(2)))
		return 1
	}
	return units / row
}

// units is the number of layers to spread, embedding and head included where
// they count as one.
func (p *splitting) units() int { return p.Layers + side(p.EmbeddingCounts) + side(p.HeadCounts) }

// even gives every virtual stage the same number of units.
func (p *splitting) even(chunks int) []int {
	n, units := p.Stages*chunks, p.units()
	if units%n != 0 {
		of, extra := "", units-p.Layers
		if chunks > 1 {
			of = fmt.Sprintf(" of %d chunks", chunks)
		}
		p.problem("%d layers cannot be divided evenly among %d pipeline stages%s: %s", units, p.Stages, of, use(
			near("--pipeline-model-parallel-size", p.Stages, func(s int) bool { return units%(s*chunks) == 0 && (chunks == 1 || s > 1) }, units),
			near("--num-layers", p.Layers, func(l int) bool { return (l+extra)%n == 0 }, p.Layers+n), p.method(n), p.fitting(chunks)))
		return nil
	}
	counts := make([]int, n)
	for v := range counts {
		counts[v] = units / n
	}
	counts[0] -= side(p.EmbeddingCounts)
	counts[n-1] -= side(p.HeadCounts)
	return counts
}

// uneven fixes the ends; the stages between divide the rest.
func (p *splitting) uneven(chunks int) []int {
	if p.Stages == 1 {
		p.problem("--decoder-first-pipeline-num-layers and --decoder-last-pipeline-num-layers need --pipeline-model-parallel-size of at least 2")
		return nil
	}
	// What the fixed ends leave to the stages between.
	left, between := p.Layers, p.Stages
	for _, fixed := range []struct {
		flag   string
		layers int
	}{{"--decoder-first-pipeline-num-layers", p.First}, {"--decoder-last-pipeline-num-layers", p.Last}} {
		if fixed.layers == 0 {
			continue
		}
		if fixed.layers%chunks != 0 {
			p.problem("%s %d is not a multiple of the %d chunks of a stage: %s", fixed.flag, fixed.layers, chunks,
				use(near(fixed.flag, fixed.layers, func(n int) bool { return n%chunks == 0 }, p.Layers)))
		}
		left, between = left-fixed.layers, between-1
	}
	switch {
	case left < 0 || between < 0 || between == 0 && left > 0:
		p.problem("--decoder-first-pipeline-num-layers %d and --decoder-last-pipeline-num-layers %d leave %d of %d layers for the %d stages in between: %s",
			p.First, p.Last, left, p.Layers, max(0, between), use(p.fitting(chunks)))
	case between > 0 && (left == 0 || left%(between*chunks) != 0):
		p.problem("%d layers (all %d except those of the first and last stage) cannot be divided evenly among %d pipeline stages of %d chunks: %s",
			left, p.Layers, between, chunks, use(near("ends with a sum of", p.First+p.Last, func(n int) bool { return n < p.Layers && (p.Layers-n)%(between*chunks) == 0 }, p.Layers), p.fitting(chunks)))
	}
	if len(p.problems) > 0 {
		return nil
	}
	// Virtual stage v is chunk v / Stages of rank v % Stages; the ends' layers are shared by their chunks.
	counts := make([]int, p.Stages*chunks)
	for v := range counts {
		switch stage := v % p.Stages; {
		case stage == 0 && p.First > 0:
			counts[v] = p.First / chunks
		case stage == p.Stages-1 && p.Last > 0:
			counts[v] = p.Last / chunks
		default:
			counts[v] = left / between / chunks
		}
	}
	return counts
}

// near writes a flag with the nearest good values below and above n, up to a
// limit; nothing where there are none.
func near(flag string, n int, good func(int) bool, limit int) string {
	var found []string
	for low := min(n-1, limit); low > 0; low-- {
		if good(low) {
			found = append(found, fmt.Sprint(low))
			break
		}
	}
	for high := n + 1; high <= limit; high++ {
		if good(high) {
			found = append(found, fmt.Sprint(high))
			break
		}
	}
	if len(found) == 0 {
		return ""
	}
	return flag + " " + strings.Join(found, " or ")
}

// use lists what to do instead; options may be empty.
func use(options ...string) string {
	options = slices.DeleteFunc(options, func(o string) bool { return o == "" })
	switch n := len(options); n {
	case 0:
		return "use fewer stages"
	case 1:
		return "use " + options[0]
	default:
		return "use " + strings.Join(options[:n-1], ", ") + ", or " + options[n-1]
	}
}

// method names the way to cut that takes layers which do not divide; nothing where
// another way has been chosen.
func (p *splitting) method(n int) string {
	if n > p.Layers+2 || p.EmbeddingCounts || p.HeadCounts || p.LayersPerChunk > 0 {
		return ""
	}
	return "--pp-partition-method '" + ByLayersAndEmbeddings + "'"
}

// fitting writes out a layout that does for this model and these stages; the
// embedding and the head take a stage of their own where layers are few.
func (p *splitting) fitting(chunks int) string {
	n := p.Stages * chunks
	embedding, head := side(p.EmbeddingCounts), side(p.HeadCounts)
	if n > p.Layers {
		embedding, head = 1, 1
	}
	if n > p.Layers+embedding+head || p.Stages == 1 {
		return ""
	}
	counts := spread(p.Layers+embedding+head, n)
	counts[0] -= embedding
	counts[n-1] -= head
	return "--pipeline-model-parallel-layout '" + LayoutString(counts, p.Ahead) + "'"
}
