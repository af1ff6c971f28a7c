package inspect

import (
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/all"
	"monotron/mpu"
)

// slicer is a Source that knows how its files cut a tensor.
type slicer interface {
	// Slices lists the boxes of a tensor that its files hold.
	Slices(name string) []mpu.Piece
}

// inspectForeign lists a checkpoint that another program wrote, by the names and
// shapes of the complete model.
func inspectForeign(path string, step int64, values bool) (*listing, error) {
	src, err := all.Open(path, checkpoint.OpenOptions{Step: step})
	if err != nil {
		return nil, err
	}
	defer src.Close()
	info, state := src.Info(), src.State()
	l := &listing{Path: info.Path, Format: string(info.Format), State: &state, Model: info.Model, Layout: layoutOf(info.Layout), Notes: info.Notes}
	// What keeps it from being loaded is a note here.
	if err := checkpoint.Check(src); err != nil {
		l.Notes = append(l.Notes, err.Error())
	}
	cut, _ := src.(slicer)
	// Each tensor, with values where they are asked for.
	for _, t := range src.Tensors() {
		line := tensorLine{Name: t.Name, DType: t.DType, Shape: t.Shape, Pieces: 1, Checksum: "none"}
		if cut != nil {
			line.Pieces = len(cut.Slices(t.Name))
		}
		if values {
			s := newStats(t.DType)
			if err := checkpoint.ByRows(src, t, 1<<20, func(_ mpu.Piece, chunk []byte) error { return s.add(chunk) }); err != nil {
				return nil, err
			}
			s.fill(&line)
		}
		l.Bytes += t.Bytes()
		l.add(line)
	}
	return l, nil
}

// layoutOf is nil for formats that have none.
func layoutOf(l checkpoint.Layout) *checkpoint.Layout {
	if l.TP == 0 && l.PP == 0 {
		return nil
	}
	l = l.Complete()
	return &l
}
