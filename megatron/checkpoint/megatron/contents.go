package megatron

import (
	"slices"
	"strings"
	"sync"

	"monotron/internal/exitcode"
	"monotron/internal/parallelio/blocks"
	"monotron/internal/pickle"
	"monotron/megatron/checkpoint"
	"monotron/mpu"
)

// Contents gives what a source shows in the shapes that Megatron stores.
type Contents struct {
	src   checkpoint.Source
	types map[string]string // of the stored tensors

	DType     string   // of the values
	Optimizer bool     // every parameter has both moments
	Notes     []string // what is left out
}

// NewContents checks what src shows: all of a model's values, and moments of
// all of them or of none.
func NewContents(src checkpoint.Source) (*Contents, error) {
	if err := checkpoint.Check(src); err != nil {
		return nil, err
	}
	// Values have one type, which the formats store once for all.
	c := &Contents{src: src, types: map[string]string{}, Optimizer: true}
	for _, t := range src.Tensors() {
		c.types[t.Name] = t.DType
		if strings.HasPrefix(t.Name, checkpoint.Model) {
			switch {
			case checkpoint.IsBuffer(strings.TrimPrefix(t.Name, checkpoint.Model)): // f32 always
			case c.DType == "":
				c.DType = t.DType
			case c.DType != t.DType:
				return nil, exitcode.Errorf(exitcode.BadData, "%s: some values are %s and some are %s, but Megatron's formats store only one type; choose it with --dtype", src.Info().Path, c.DType, t.DType)
			}
		}
	}
	if c.DType != "F32" && c.DType != "BF16" && c.DType != "F16" {
		return nil, exitcode.Errorf(exitcode.BadData, "%s: values are %s; Megatron's formats store F32, BF16 or F16; choose one with --dtype", src.Info().Path, c.DType)
	}
	// What a reader cannot see in the files is a note.
	if note, ok := ropeNote(src.Info().Model.RopeScaling); ok {
		c.Notes = append(c.Notes, note)
	}
	if note, ok := restNote(src.Info().Model); ok {
		c.Notes = append(c.Notes, note)
	}
	// Moments of all parameters, or none.
	found := 0
	for _, t := range checkpoint.Expected(src.Info().Model) {
		if checkpoint.IsBuffer(t.Name) {
			continue
		}
		for _, prefix := range []string{checkpoint.ExpAvg, checkpoint.ExpSq} {
			switch c.types[prefix+t.Name] {
			case "F32":
				found++
			case "":
				c.Optimizer = false
			default:
				return nil, exitcode.Errorf(exitcode.BadData, "%s: %s%s is %s; Megatron's formats store moments in F32 only; use --weights-only to leave the moments out", src.Info().Path, prefix, t.Name, c.types[prefix+t.Name])
			}
		}
	}
	if found > 0 && !c.Optimizer {
		c.Notes = append(c.Notes, "some parameters have no moments, so the optimizer's state is left out")
	}
	return c, nil
}

// ValueType is the type of a value: buffers are f32 whatever the parameters are.
func (c *Contents) ValueType(name string) string {
	if checkpoint.IsBuffer(name) {
		return "F32"
	}
	return c.DType
}

// stored is the name and type behind a kind of tensor; main parameters of f32 values, or
// where there are none, are the values.
func (c *Contents) stored(prefix, name string) (full, dtype string) {
	if dtype, ok := c.types[prefix+name]; ok {
		return prefix + name, dtype
	}
	return checkpoint.Model + name, c.types[checkpoint.Model+name]
}

const chunk = 8 << 20 // bytes of a tensor at a time

// Tasks make a rank's tensor of a kind, as elements of dtype, row-major, with
// zeros for padding.
func (c *Contents) Tasks(prefix string, p Local, dtype string) []blocks.Task {
	full, from := c.stored(prefix, p.Name)
	pieces := slices.Clone(p.Pieces)
	slices.SortFunc(pieces, func(a, b mpu.Piece) int { return int(a.Local - b.Local) })
	var list []blocks.Task
	at := int64(0)
	for _, piece := range pieces {
		list = zeros(list, (piece.Local-at)*checkpoint.Width(dtype))
		list = c.box(list, full, from, piece, dtype)
		at = piece.Local + piece.Len()
	}
	return zeros(list, (checkpoint.Volume(p.Shape)-at)*checkpoint.Width(dtype))
}

// box adds a box of a stored tensor, by rows.
func (c *Contents) box(list []blocks.Task, full, from string, box mpu.Piece, dtype string) []blocks.Task {
	wide, narrow := checkpoint.Width(from), checkpoint.Width(dtype)
	checkpoint.BoxByRows(box, chunk/wide, func(sub mpu.Piece) {
		list = append(list, blocks.Task{Bytes: sub.Len() * narrow, Fill: func(dst []byte) error {
			if from == dtype {
				return c.src.Read(full, sub, dst)
			}
			buf := raws.Get().(*[]byte)
			defer raws.Put(buf)
			raw := sized(buf, sub.Len()*wide)
			if err := c.src.Read(full, sub, raw); err != nil {
				return err
			}
			return checkpoint.Convert(dst, dtype, raw, from)
		}})
	})
	return list
}

// raws are buffers for elements of another type.
var raws = sync.Pool{New: func() any { return new([]byte) }}

// sized is n bytes of a buffer that is kept: touching new memory costs as much as
// filling it.
func sized(buf *[]byte, n int64) []byte {
	if int64(cap(*buf)) < n {
		*buf = make([]byte, n)
	}
	return (*buf)[:n]
}

// zeros adds n bytes of padding.
func zeros(list []blocks.Task, n int64) []blocks.Task {
	for ; n > 0; n -= chunk {
		list = append(list, blocks.Task{Bytes: min(n, chunk), Fill: func(dst []byte) error {
			clear(dst)
			return nil
		}})
	}
	return list
}

// Tensor is a rank's tensor of a kind, to be saved.
func (c *Contents) Tensor(prefix string, p Local, dtype string) *pickle.Tensor {
	return pickle.NewTensor(dtype, p.Shape, c.Tasks(prefix, p, dtype))
}

// Flat is a distributed optimizer's buffer of a kind, f32: buckets one behind
// the other, zeros between parameters.
func (c *Contents) Flat(prefix string, buckets []Bucket) *pickle.Tensor {
	var list []blocks.Task
	for _, b := range buckets {
		at := int64(0)
		for _, p := range b.Params {
			list = zeros(list, (p.Start-at)*4)
			list = append(list, c.Tasks(prefix, p.Local, "F32")...)
			at = p.Start + checkpoint.Volume(p.Shape)
		}
	}
	return pickle.NewTensor("F32", []int64{Numel(buckets)}, list)
}
