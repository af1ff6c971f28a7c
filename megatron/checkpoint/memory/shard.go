package memory

import (
	"encoding/json"
	"fmt"

	"github.com/zeebo/xxh3"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/mpu"
)

// chunkBytes of the device's tensors are read and written at a time.
const chunkBytes = 4 << 20

// Bytes is the size of a rank's shard: the local buffers of its tensors.
func Bytes(tensors []mpu.Stored) (bytes int64) {
	for _, t := range tensors {
		bytes += t.Tensor.Bytes()
	}
	return bytes
}

// layoutOf distinguishes shards of other tensors, or other pieces of them.
func layoutOf(tensors []mpu.Stored) (uint64, error) {
	type row struct {
		Name   string
		DType  string
		Global []int64
		Bytes  int64
		Pieces []mpu.Piece
	}
	rows := make([]row, len(tensors))
	for i, t := range tensors {
		rows[i] = row{t.Name, t.Tensor.DType.String(), t.Global, t.Tensor.Bytes(), t.Pieces}
	}
	text, err := json.Marshal(rows)
	return xxh3.Hash(text), exitcode.With(exitcode.Internal, err)
}

// gather copies the tensors of a rank into dst, one after the other.
func gather(d *device.Device, dst []byte, tensors []mpu.Stored) error {
	return each(tensors, dst, func(t device.Tensor, part []byte) error {
		d.Read(part, t)
		return d.Err()
	})
}

// Sum is of the values of a rank's tensors, in their order.
func Sum(d *device.Device, tensors []mpu.Stored) (string, error) {
	sum, chunk := xxh3.New(), make([]byte, chunkBytes)
	for _, t := range tensors {
		err := eachChunk(t, func(part device.Tensor) error {
			bytes := chunk[:part.Bytes()]
			d.Read(bytes, part)
			_, _ = sum.Write(bytes) // a hash takes everything
			return d.Err()
		})
		if err != nil {
			return "", fmt.Errorf("tensor %q: %w", t.Name, err)
		}
	}
	return fmt.Sprintf("%x", sum.Sum128().Bytes()), nil
}

// scatter is gather's other way.
func scatter(d *device.Device, src []byte, tensors []mpu.Stored) error {
	if err := each(tensors, src, func(t device.Tensor, part []byte) error {
		d.Write(t, part)
		return d.Err()
	}); err != nil {
		return err
	}
	return d.Sync()
}

// each calls f with chunks of the tensors and the bytes that belong to them.
func each(tensors []mpu.Stored, bytes []byte, f func(device.Tensor, []byte) error) error {
	for _, s := range tensors {
		err := eachChunk(s, func(part device.Tensor) error {
			own := bytes[:part.Bytes()]
			bytes = bytes[len(own):]
			return f(part, own)
		})
		if err != nil {
			return fmt.Errorf("memory checkpoint: tensor %q: %w", s.Name, err)
		}
	}
	return nil
}

// eachChunk calls f with the parts of a tensor that are read or written at a time.
func eachChunk(s mpu.Stored, f func(device.Tensor) error) error {
	flat, width := s.Tensor.Reshape(s.Tensor.Len()), s.Tensor.DType.Size()
	for at := int64(0); at < flat.Len(); at += chunkBytes / width {
		if err := f(flat.Slice(0, at, min(chunkBytes/width, flat.Len()-at))); err != nil {
			return err
		}
	}
	return nil
}
