package native

import (
	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint"
	"monotron/mpu"
)

// fillByBoxes fills each tensor of this rank from the boxes that its pieces name. Reading
// goes ahead of writing to the device on several goroutines.
func fillByBoxes(src checkpoint.Source, found []*checkpoint.Tensor, tensors []mpu.Stored, dev *device.Device, report *Report, _ map[string]bool) error {
	var work []transfer
	for i, t := range tensors {
		if found[i] == nil {
			continue
		}
		work = append(work, transfers(found[i], t)...)
		report.Restored = append(report.Restored, t.Name)
	}
	for _, w := range work {
		report.Bytes += w.box.Len() * checkpoint.Width(w.from)
	}
	return move(src, work, dev)
}

// transfer is a box of a stored tensor and its position on the device.
type transfer struct {
	name string
	from string // dtype as stored
	box  mpu.Piece
	to   device.Tensor // [elements of the box]
}

// transfers cuts a tensor's pieces into boxes of complete rows of about a chunk.
func transfers(have *checkpoint.Tensor, t mpu.Stored) []transfer {
	var list []transfer
	flat := t.Tensor.Reshape(t.Tensor.Len())
	for _, p := range t.Pieces {
		row := p.Len() / p.Size[0]
		rows := max(1, chunkBytes/(row*checkpoint.Width(have.DType)))
		for r := int64(0); r < p.Size[0]; r += rows {
			n := min(rows, p.Size[0]-r)
			box := mpu.Piece{From: append([]int64{p.From[0] + r}, p.From[1:]...), Size: append([]int64{n}, p.Size[1:]...)}
			list = append(list, transfer{have.Name, have.DType, box, flat.Slice(0, p.Local+r*row, n*row)})
		}
	}
	return list
}

// move makes the transfers in order; the next ones are read meanwhile.
func move(src checkpoint.Source, work []transfer, dev *device.Device) error {
	type result struct {
		raw []byte
		err error
	}
	// Reads run in goroutines, `ahead` of them at most; ready[i] receives transfer i.
	ahead := 1 + device.Cores()
	ready := make([]chan result, len(work))
	start := func(i int) {
		ready[i] = make(chan result, 1)
		go func() {
			raw, err := work[i].read(src)
			ready[i] <- result{raw, err}
		}()
	}
	for i := range min(ahead, len(work)) {
		start(i)
	}
	// Writes to the device are in order, one at a time. After an error the reads under way are waited for: src
	// may be closed once this returns.
	drain := func(i int) {
		for j := i + 1; j < min(i+ahead, len(work)); j++ {
			<-ready[j]
		}
	}
	for i := range work {
		r := <-ready[i]
		if r.err != nil {
			drain(i)
			return r.err
		}
		dev.Write(work[i].to, r.raw)
		if err := dev.Err(); err != nil {
			drain(i)
			return exitcode.Errorf(exitcode.CodeOf(err), "checkpoint: writing tensor %q to the device: %w", work[i].name, err)
		}
		if i+ahead < len(work) {
			start(i + ahead)
		}
	}
	return nil
}

// read gives the box in the device's dtype.
func (t *transfer) read(src checkpoint.Source) ([]byte, error) {
	raw := make([]byte, t.box.Len()*checkpoint.Width(t.from))
	if err := src.Read(t.name, t.box, raw); err != nil {
		return nil, err
	}
	want := dtypeName[t.to.DType]
	if want == t.from {
		return raw, nil
	}
	converted := make([]byte, t.box.Len()*checkpoint.Width(want))
	return converted, checkpoint.Convert(converted, want, raw, t.from)
}
