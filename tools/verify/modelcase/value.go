package modelcase

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"monotron/megatron/checkpoint"
	"monotron/mpu"
)

// value is a tensor of a rank: a parameter, or one expert's part of one.
type value struct {
	mpu.Stored                    // its pieces count from the tensor's first element here
	param       *mpu.Param        //
	shape       []int64           // here
	from        int64             // element of the parameter's buffer where the tensor starts
	named       string            // as Megatron's rank names it
	start, grad []float64         // grad: as the first step leaves Param.Grad
	after       map[int][]float64 // by iteration
}

// valuesOf lists the tensors of a parameter.
func valuesOf(p *mpu.Param) (all []*value) {
	for i, t := range p.Tensors() {
		h := &value{Stored: t, param: p, shape: p.Shape}
		if p.Each != nil {
			h.shape = p.Shape[1:]
			h.from = int64(i) * checkpoint.Volume(h.shape)
		}
		h.Pieces = slices.Clone(t.Pieces)
		for j := range h.Pieces {
			h.Pieces[j].Local -= h.from
		}
		all = append(all, h)
	}
	return all
}

// part is the tensor's values among those of the parameter.
func (h *value) part(x []float64) []float64 {
	return x[h.from:][:checkpoint.Volume(h.shape)]
}

// of is the tensor's pieces with the local values x.
func (h *value) of(x []float64) boxes { return boxes{h.Name, h.Global, h.Pieces, x} }

// valuesBy lists the tensors of a stage's parameters in Megatron's order, which goes from
// expert to expert.
func valuesBy(params []*mpu.Param) (all []*value) {
	for i := 0; i < len(params); {
		n := 1
		for params[i].Each != nil && i+n < len(params) && params[i+n].Each != nil && params[i].Unit == params[i+n].Unit {
			n++
		}
		var tensors [][]*value
		for _, p := range params[i : i+n] {
			tensors = append(tensors, valuesOf(p))
		}
		for j := range tensors[0] {
			for _, t := range tensors {
				all = append(all, t[j])
			}
		}
		i += n
	}
	return all
}

// megatronNames gives the parameters of a stage the names that Megatron's rank
// uses: layers are counted from the stage's first, experts from the rank's, chunks of
// several are distinguished, and the copy of a tied table on the last stage is its output layer.
func megatronNames(params []*mpu.Param, chunk, chunks int) []*value {
	out := valuesBy(params)
	layers, experts := -1, -1
	for i, h := range out {
		name := renumbered(renumbered(h.Name, layerPrefix, &layers), expertInfix, &experts)
		if i > 0 && name == wordTable {
			name = "output_layer.weight"
		}
		if chunks > 1 {
			name = fmt.Sprintf("model%d.%s", chunk, name)
		}
		h.named = name
	}
	return out
}

// renumbered counts what follows `before` in a name from *first, which is set where it is −1.
func renumbered(name, before string, first *int) string {
	head, rest, ok := strings.Cut(name, before)
	if !ok {
		return name
	}
	number, tail, _ := strings.Cut(rest, ".")
	n, err := strconv.Atoi(number)
	if err != nil {
		panic(fmt.Sprintf("modelcase: %q has no number after %q", name, before))
	}
	if *first < 0 {
		*first = n
	}
	return fmt.Sprintf("%s%s%d.%s", head, before, n-*first, tail)
}

const (
	layerPrefix = "decoder.layers."
	expertInfix = "experts.local_experts."
	wordTable   = "embedding.word_embeddings.weight"
)
