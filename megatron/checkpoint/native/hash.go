package native

import (
	"fmt"

	"monotron/csrc/device"
	"monotron/internal/fingerprint"
	"monotron/megatron/checkpoint"
	"monotron/mpu"
)

// Hash is the fingerprint of the tensors with Write set, by name, data type and index in the
// global tensor. It depends on no layout; the sums of several ranks add up to that of one.
// Padding is outside every piece and not in it.
func Hash(tensors []mpu.Stored, dev *device.Device) (total fingerprint.Sum, err error) {
	for _, t := range tensors {
		if !t.Write {
			continue
		}
		sum, err := Fingerprint(t, dev)
		if err != nil {
			return total, err
		}
		total.Plus(sum)
	}
	return total, nil
}

// Fingerprint is that of this rank's pieces of one tensor.
func Fingerprint(t mpu.Stored, dev *device.Device) (total fingerprint.Sum, err error) {
	if err := checkStored(t); err != nil {
		return total, err
	}
	flat, width := t.Tensor.Reshape(t.Tensor.Len()), t.Tensor.DType.Size()
	buf := make([]byte, min(chunkBytes, t.Tensor.Bytes()))
	for _, p := range t.Pieces {
		s := newPieceSum(t.Name, t.Tensor.DType, p, t.Global)
		for at := int64(0); at < p.Len()*width; at += int64(len(buf)) {
			chunk := buf[:min(int64(len(buf)), p.Len()*width-at)]
			dev.Read(chunk, flat.Slice(0, p.Local+at/width, int64(len(chunk))/width))
			s.add(chunk)
		}
		total.Plus(s.sum)
	}
	if err := dev.Sync(); err != nil {
		return total, fmt.Errorf("reading %s from the device: %w", t.Name, err)
	}
	return total, nil
}

// Hash is the same fingerprint of the stored tensors that keep selects.
func (f *Folder) Hash(keep func(name string) bool) (total fingerprint.Sum, err error) {
	buf := f.buffer()
	for i := range f.Manifest.Tensors {
		t := &f.Manifest.Tensors[i]
		if !keep(t.Name) {
			continue
		}
		for _, p := range t.Pieces {
			s := newPieceSum(t.Name, dtypeOf[t.DType], p.box(), t.Shape)
			err := f.Stream(t, p, buf, func(_ int64, chunk []byte) error {
				s.add(chunk)
				return nil
			})
			if err != nil {
				return total, err
			}
			total.Plus(s.sum)
		}
	}
	return total, nil
}

// pieceSum is the fingerprint of a piece given front to back.
type pieceSum struct {
	key   fingerprint.Key
	width int64
	at    *checkpoint.Overlap // a: the piece, b: the global tensor
	sum   fingerprint.Sum
}

func newPieceSum(name string, dtype device.DType, p mpu.Piece, global []int64) *pieceSum {
	return &pieceSum{key: fingerprint.KeyOf(name, dtype.String(), global), width: dtype.Size(), at: checkpoint.NewOverlap(p, checkpoint.Uncut(global))}
}

func (s *pieceSum) add(chunk []byte) {
	for len(chunk) > 0 && s.at.OK {
		n := min(s.at.N, int64(len(chunk))/s.width)
		s.sum.Add(s.key, chunk[:n*s.width], int(s.width), s.at.InB)
		chunk = chunk[n*s.width:]
		s.at.Take(n)
	}
}
