package native

import (
	"encoding/binary"
	"fmt"

	"monotron/csrc/device"
	"monotron/megatron/checkpoint"
	"monotron/mpu"
)

// Hash is a fingerprint of the tensors with Write set: the sum, over all
// elements, of a mix of the tensor's name, the element's index in the global
// tensor and its bits. It depends on no layout; the sums of several ranks add
// up (modulo 2^64) to that of one. Padding is outside every piece and not in it.
func Hash(tensors []mpu.Stored, dev *device.Device) (uint64, error) {
	total := uint64(0)
	for _, t := range tensors {
		if !t.Write {
			continue
		}
		if err := checkStored(t); err != nil {
			return 0, err
		}
		flat, width := t.Tensor.Reshape(t.Tensor.Len()), t.Tensor.DType.Size()
		buf := make([]byte, min(chunkBytes, t.Tensor.Bytes()))
		for _, p := range t.Pieces {
			s := newElementSum(t.Name, p, t.Global, width)
			for at := int64(0); at < p.Len()*width; at += int64(len(buf)) {
				chunk := buf[:min(int64(len(buf)), p.Len()*width-at)]
				dev.Read(chunk, flat.Slice(0, p.Local+at/width, int64(len(chunk))/width))
				s.add(chunk)
			}
			total += s.sum
		}
	}
	if err := dev.Sync(); err != nil {
		return 0, fmt.Errorf("reading tensors from the device: %w", err)
	}
	return total, nil
}

// HashText is a Hash as logs and tools write it.
func HashText(h uint64) string { return fmt.Sprintf("%016x", h) }

// Hash is the same fingerprint of the stored tensors that keep selects.
func (f *Folder) Hash(keep func(name string) bool) (uint64, error) {
	total := uint64(0)
	buf := f.buffer()
	for i := range f.Manifest.Tensors {
		t := &f.Manifest.Tensors[i]
		if !keep(t.Name) {
			continue
		}
		for _, p := range t.Pieces {
			s := newElementSum(t.Name, p.box(), t.Shape, dtypeOf[t.DType].Size())
			err := f.Stream(t, p, buf, func(_ int64, chunk []byte) error {
				s.add(chunk)
				return nil
			})
			if err != nil {
				return 0, err
			}
			total += s.sum
		}
	}
	return total, nil
}

// elementSum hashes a piece given front to back.
type elementSum struct {
	key   uint64
	width int64
	at    *checkpoint.Overlap // a: the piece, b: the global tensor
	sum   uint64
}

func newElementSum(name string, p mpu.Piece, global []int64, width int64) *elementSum {
	return &elementSum{key: device.StreamKey(0, name), width: width, at: checkpoint.NewOverlap(p, checkpoint.Whole(global))}
}

func (s *elementSum) add(chunk []byte) {
	for len(chunk) > 0 && s.at.OK {
		n := min(s.at.N, int64(len(chunk))/s.width)
		for i := range n {
			s.sum += device.Mix(device.Mix(s.key^uint64(s.at.InB+i)) ^ s.bits(chunk[i*s.width:]))
		}
		chunk = chunk[n*s.width:]
		s.at.Take(n)
	}
}

func (s *elementSum) bits(b []byte) uint64 {
	switch s.width {
	case 2:
		return uint64(binary.LittleEndian.Uint16(b))
	case 4:
		return uint64(binary.LittleEndian.Uint32(b))
	}
	return binary.LittleEndian.Uint64(b)
}
