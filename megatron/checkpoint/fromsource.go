package checkpoint

import (
	"fmt"
	"runtime"

	"monotron/csrc/device"
	"monotron/fault"
	"monotron/megatron/formats"
	"monotron/mpu"
)

// LoadSource is Load from an open checkpoint of any format: each tensor of this
// rank is filled from the boxes that its pieces name. Reading goes ahead of
// writing to the device on several goroutines.
func LoadSource(src formats.Source, tensors []mpu.Stored, dev *device.Device, o LoadOptions) (State, Report, error) {
	info := src.Info()
	report := Report{Folder: info.Path, Iteration: src.State().Iteration, Notes: info.Notes}
	list := src.Tensors()
	m := &Manifest{Tensors: make([]Tensor, len(list))}
	for i, t := range list {
		m.Tensors[i] = Tensor{Name: t.Name, DType: t.DType, Shape: t.Shape}
	}
	for _, t := range tensors {
		if err := checkStored(t); err != nil {
			return State{}, Report{}, err
		}
	}
	found, err := match(m, tensors, o, nil, &report)
	if err != nil {
		return State{}, Report{}, fmt.Errorf("%s: %w", info.Path, err)
	}
	var work []transfer
	for i, t := range tensors {
		if found[i] == nil {
			continue
		}
		work = append(work, transfers(found[i], t)...)
		report.Restored = append(report.Restored, t.Name)
	}
	if err := move(src, work, dev); err != nil {
		return State{}, Report{}, err
	}
	for _, w := range work {
		report.Bytes += w.box.Len() * formats.Width(w.from)
	}
	if err := dev.Sync(); err != nil {
		return State{}, Report{}, fmt.Errorf("checkpoint: writing tensors to the device: %w", err)
	}
	return src.State(), report, nil
}

// transfer is a box of a stored tensor and its place on the device.
type transfer struct {
	name string
	from string // dtype as stored
	box  mpu.Piece
	to   device.Tensor // [elements of the box]
}

// transfers cuts a tensor's pieces into boxes of whole rows of about a chunk.
func transfers(have *Tensor, t mpu.Stored) []transfer {
	var list []transfer
	flat := t.Tensor.Reshape(t.Tensor.Len())
	for _, p := range t.Pieces {
		row := p.Len() / p.Size[0]
		rows := max(1, chunkBytes/(row*formats.Width(have.DType)))
		for r := int64(0); r < p.Size[0]; r += rows {
			n := min(rows, p.Size[0]-r)
			box := mpu.Piece{From: append([]int64{p.From[0] + r}, p.From[1:]...), Size: append([]int64{n}, p.Size[1:]...)}
			list = append(list, transfer{have.Name, have.DType, box, flat.Slice(0, p.Local+r*row, n*row)})
		}
	}
	return list
}

// move makes the transfers in order; the next ones are read meanwhile.
func move(src formats.Source, work []transfer, dev *device.Device) error {
	type result struct {
		raw []byte
		err error
	}
	ahead := 1 + runtime.GOMAXPROCS(0)
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
	for i := range work {
		r := <-ready[i]
		if r.err != nil {
			for j := i + 1; j < min(i+ahead, len(work)); j++ {
				<-ready[j] // src may be closed once we return
			}
			return r.err
		}
		dev.Write(work[i].to, r.raw)
		if err := dev.Err(); err != nil {
			return fault.Errorf(fault.CodeOf(err), "checkpoint: writing tensor %q to the device: %w", work[i].name, err)
		}
		if i+ahead < len(work) {
			start(i + ahead)
		}
	}
	return nil
}

// read gives the box in the device's dtype.
func (t *transfer) read(src formats.Source) ([]byte, error) {
	raw := make([]byte, t.box.Len()*formats.Width(t.from))
	if err := src.Read(t.name, t.box, raw); err != nil {
		return nil, err
	}
	want := dtypeName[t.to.DType]
	if want == t.from {
		return raw, nil
	}
	converted := make([]byte, t.box.Len()*formats.Width(want))
	return converted, formats.Convert(converted, want, raw, t.from)
}
