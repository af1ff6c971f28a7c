package megatron

import (
	"io"
	"slices"
	"strings"

	"monotron/fault"
	"monotron/megatron/checkpoint/formats"
	"monotron/megatron/checkpoint/pickle"
	"monotron/mpu"
)

// Contents gives what a source shows in the shapes that Megatron stores.
type Contents struct {
	src   formats.Source
	types map[string]string // of the stored tensors

	raw, converted []byte // of the box under way: files are written one after the other

	DType     string   // of the values
	Optimizer bool     // every parameter has both moments
	Notes     []string // what is left out
}

// NewContents looks at what src shows: all of a model's values, and moments of
// all of them or of none.
func NewContents(src formats.Source) (*Contents, error) {
	if err := formats.Check(src); err != nil {
		return nil, err
	}
	c := &Contents{src: src, types: map[string]string{}, Optimizer: true}
	for _, t := range src.Tensors() {
		c.types[t.Name] = t.DType
		if strings.HasPrefix(t.Name, formats.Model) {
			switch {
			case c.DType == "":
				c.DType = t.DType
			case c.DType != t.DType:
				return nil, fault.Errorf(fault.BadData, "%s: values are %s and %s; Megatron's formats hold one type, say which with --dtype", src.Info().Path, c.DType, t.DType)
			}
		}
	}
	if c.DType != "F32" && c.DType != "BF16" && c.DType != "F16" {
		return nil, fault.Errorf(fault.BadData, "%s: values are %s; Megatron's formats hold F32, BF16 or F16", src.Info().Path, c.DType)
	}
	if note, ok := ropeNote(src.Info().Model.RopeScaling); ok {
		c.Notes = append(c.Notes, note)
	}
	found := 0
	for _, t := range formats.Expected(src.Info().Model) {
		for _, prefix := range []string{formats.ExpAvg, formats.ExpSq} {
			switch c.types[prefix+t.Name] {
			case "F32":
				found++
			case "":
				c.Optimizer = false
			default:
				return nil, fault.Errorf(fault.BadData, "%s: %s%s is %s; Megatron's formats hold moments in F32", src.Info().Path, prefix, t.Name, c.types[prefix+t.Name])
			}
		}
	}
	if found > 0 && !c.Optimizer {
		c.Notes = append(c.Notes, "some parameters have no moments: the optimizer's state is left out")
	}
	return c, nil
}

// stored is the name and type behind a kind of tensor; masters of f32 values, or
// where there are none, are the values.
func (c *Contents) stored(prefix, name string) (full, dtype string) {
	if dtype, ok := c.types[prefix+name]; ok {
		return prefix + name, dtype
	}
	return formats.Model + name, c.types[formats.Model+name]
}

const chunk = 4 << 20 // bytes of a tensor at a time

// Write writes a rank's tensor of a kind, as elements of dtype, row-major, with
// zeros for padding.
func (c *Contents) Write(w io.Writer, prefix string, p Local, dtype string) error {
	full, from := c.stored(prefix, p.Name)
	pieces := slices.Clone(p.Pieces)
	slices.SortFunc(pieces, func(a, b mpu.Piece) int { return int(a.Local - b.Local) })
	at := int64(0)
	for _, piece := range pieces {
		if err := zeros(w, (piece.Local-at)*formats.Width(dtype)); err != nil {
			return err
		}
		if err := c.box(w, full, from, piece, dtype); err != nil {
			return err
		}
		at = piece.Local + piece.Len()
	}
	return zeros(w, (formats.Volume(p.Shape)-at)*formats.Width(dtype))
}

// box writes a box of a stored tensor by rows.
func (c *Contents) box(w io.Writer, full, from string, box mpu.Piece, dtype string) error {
	return formats.BoxByRows(box, chunk/formats.Width(from), func(sub mpu.Piece) error {
		raw := sized(&c.raw, sub.Len()*formats.Width(from))
		if err := c.src.Read(full, sub, raw); err != nil {
			return err
		}
		if from != dtype {
			out := sized(&c.converted, sub.Len()*formats.Width(dtype))
			if err := formats.Convert(out, dtype, raw, from); err != nil {
				return err
			}
			raw = out
		}
		_, err := w.Write(raw)
		return err
	})
}

// sized is n bytes of a buffer that is kept: touching new memory costs as much as
// filling it.
func sized(buf *[]byte, n int64) []byte {
	if int64(cap(*buf)) < n {
		*buf = make([]byte, n)
	}
	return (*buf)[:n]
}

func zeros(w io.Writer, n int64) error {
	var none [4096]byte
	for n > 0 {
		part := min(n, int64(len(none)))
		if _, err := w.Write(none[:part]); err != nil {
			return err
		}
		n -= part
	}
	return nil
}

// Tensor is a rank's tensor of a kind, to be saved.
func (c *Contents) Tensor(prefix string, p Local, dtype string) *pickle.Tensor {
	return pickle.NewTensor(dtype, p.Shape, func(w io.Writer) error { return c.Write(w, prefix, p, dtype) })
}

// Flat is a distributed optimizer's buffer of a kind, f32: buckets one behind
// the other, zeros between parameters.
func (c *Contents) Flat(prefix string, buckets []Bucket) *pickle.Tensor {
	return pickle.NewTensor("F32", []int64{Numel(buckets)}, func(w io.Writer) error {
		for _, b := range buckets {
			at := int64(0)
			for _, p := range b.Params {
				if err := zeros(w, (p.Start-at)*4); err != nil {
					return err
				}
				if err := c.Write(w, prefix, p.Local, "F32"); err != nil {
					return err
				}
				at = p.Start + formats.Volume(p.Shape)
			}
		}
		return nil
	})
}
