package peft

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"monotron/megatron/checkpoint"
	"monotron/megatron/spec"
)

// Distance is how far a module's weight is from the rounded one that its adapter was trained over, and how
// far the adapter moves it: Euclidean norms.
type Distance struct {
	Module           string
	Rounding, Update float64
}

// Ratio is the rounding over the update: above 1 the merged weight is further from what was trained than
// the adapter is from nothing.
func (d *Distance) Ratio() float64 {
	return d.Rounding / math.Max(d.Update, math.SmallestNonzeroFloat64)
}

// Distances are those of the modules of f, the largest ratio first. src has the weights as they are, and
// rounded as the adapter was trained over them.
func Distances(src, rounded checkpoint.Source, f *Folder) (list []Distance, err error) {
	m := newMerged(src, f.Adapters, f.Values)
	for _, t := range m.list {
		if m.adapters[t.Name] == nil || checkpoint.IsVocabulary(strings.TrimPrefix(t.Name, checkpoint.Model)) { // tables are not rounded
			continue
		}
		some, err := m.distances(t, rounded)
		if err != nil {
			return nil, fmt.Errorf("measuring %s: %w", t.Name, err)
		}
		list = append(list, some...)
	}
	slices.SortStableFunc(list, func(a, b Distance) int {
		switch {
		case a.Ratio() > b.Ratio():
			return -1
		case a.Ratio() < b.Ratio():
			return 1
		}
		return 0
	})
	return list, nil
}

// distances are those of the modules that a weight [out, in] is made of.
func (m *merged) distances(t checkpoint.Tensor, rounded checkpoint.Source) (list []Distance, err error) {
	weight, err := readAll(m.Source, t.Name, t.DType, t.Shape)
	if err != nil {
		return nil, err
	}
	other, err := readAll(rounded, t.Name, t.DType, t.Shape)
	if err != nil {
		return nil, err
	}
	moved, in := slices.Clone(weight), t.Shape[1]
	for _, a := range m.adapters[t.Name] {
		if err := m.add(moved, in, a); err != nil {
			return nil, err
		}
		list = append(list, Distance{a.Module, apart(weight, other, a.Adapter, in), apart(moved, weight, a.Adapter, in)})
	}
	return list, nil
}

// apart is the norm of the difference of a module's rows of two weights.
func apart(x, y []float32, a spec.Adapter, in int64) (sum float64) {
	for _, run := range a.Rows {
		for i := run[0] * in; i < (run[0]+run[2])*in; i++ {
			d := float64(x[i]) - float64(y[i])
			sum += d * d
		}
	}
	return math.Sqrt(sum)
}

// Bare shows src without the adapter that it holds.
func Bare(src checkpoint.Source) checkpoint.Source { return newMerged(src, nil, nil) }
