package megatron

import (
	"fmt"
	"slices"
	"strings"

	"monotron/megatron/checkpoint"
	"monotron/megatron/spec"
	"monotron/mpu"
)

// Cut says which part of a tensor a rank holds: the shape of its local tensor
// and the boxes of the global one in it. Rows behind the boxes are padding.
type Cut struct {
	Shape  []int64
	Pieces []mpu.Piece
	Rank   int64 // among those that share the tensor
}

// CutOver cuts our tensor `name` (without prefix, of the given global shape)
// over `parts` ranks of tensor parallelism.
func CutOver(m *spec.Model, name string, shape []int64, parts, rank int) (Cut, error) {
	rest := Split(name).Rest
	p, r := int64(parts), int64(rank)
	full := Cut{Shape: shape, Pieces: []mpu.Piece{checkpoint.Uncut(shape)}}
	switch {
	case checkpoint.IsVocabulary(name):
		return cutVocabulary(m, shape, p, r)
	case strings.HasSuffix(rest, "linear_fc1.weight") || strings.HasSuffix(rest, "linear_fc1.bias"):
		stretches := int64(1)
		if m.Gated() {
			stretches = 2
		}
		return cutRows(name, shape, p, r, stretches)
	case strings.HasSuffix(rest, "linear_qkv.weight") || strings.HasSuffix(rest, "linear_qkv.bias"):
		return cutRows(name, shape, p, r, 1)
	case strings.HasSuffix(rest, "linear_q_proj.weight") || strings.HasSuffix(rest, "linear_q_up_proj.weight") || strings.HasSuffix(rest, "linear_kv_up_proj.weight"), strings.HasSuffix(rest, ".eh_proj.weight"):
		return cutRows(name, shape, p, r, 1)
	case strings.HasSuffix(rest, "linear_fc2.weight") || strings.HasSuffix(rest, "linear_proj.weight"):
		return cutColumns(name, shape, p, r)
	}
	return full, nil
}

func cutVocabulary(m *spec.Model, shape []int64, parts, rank int64) (Cut, error) {
	padded := int64(m.PaddedVocabSize)
	if padded%parts != 0 {
		return Cut{}, fmt.Errorf("the %d rows of the padded vocabulary cannot be divided evenly among %d ranks", padded, parts)
	}
	n := padded / parts
	c := Cut{Shape: []int64{n, shape[1]}, Rank: rank}
	if here := max(0, min(n, shape[0]-n*rank)); here > 0 {
		c.Pieces = []mpu.Piece{{From: []int64{n * rank, 0}, Size: []int64{here, shape[1]}}}
	}
	return c, nil
}

// cutRows takes this rank's share of each of several equal stretches of rows.
func cutRows(name string, shape []int64, parts, rank, stretches int64) (Cut, error) {
	if shape[0]%(stretches*parts) != 0 {
		return Cut{}, fmt.Errorf("the %d rows of %s cannot be divided evenly among %d ranks", shape[0], name, parts)
	}
	n := shape[0] / stretches / parts
	c := Cut{Shape: slices.Clone(shape)}
	c.Shape[0] = n * stretches
	row := checkpoint.Volume(shape[1:])
	for s := range stretches {
		p := mpu.Piece{From: make([]int64, len(shape)), Size: slices.Clone(shape), Local: s * n * row}
		p.From[0], p.Size[0] = s*shape[0]/stretches+rank*n, n
		c.Pieces = append(c.Pieces, p)
	}
	return c, nil
}

func cutColumns(name string, shape []int64, parts, rank int64) (Cut, error) {
	if len(shape) != 2 || shape[1]%parts != 0 {
		return Cut{}, fmt.Errorf("the columns of %s, of shape %v, cannot be divided evenly among %d ranks", name, shape, parts)
	}
	n := shape[1] / parts
	return Cut{Shape: []int64{shape[0], n}, Pieces: []mpu.Piece{{From: []int64{0, n * rank}, Size: []int64{shape[0], n}}}}, nil
}

// Parts makes the parts of a global tensor out of a local one that ReadAt reads
// from its first element on, with the given strides (nil: row-major).
func (c Cut) Parts(width int64, strides []int64, readAt func(dst []byte, at int64) error) []checkpoint.Part {
	if strides != nil && checkpoint.RowMajor(c.Shape, strides) {
		strides = nil
	}
	parts := make([]checkpoint.Part, len(c.Pieces))
	for i, p := range c.Pieces {
		from := p.Local
		if strides != nil && len(c.Shape) > 0 { // pieces are stretches of rows
			from = p.Local / max(1, checkpoint.Volume(c.Shape[1:])) * strides[0]
		}
		parts[i] = checkpoint.Part{Box: p, Strides: strides, ReadAt: func(dst []byte, at int64) error { return readAt(dst, from*width+at) }}
	}
	return parts
}
