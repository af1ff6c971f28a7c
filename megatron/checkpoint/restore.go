package checkpoint

import (
	"fmt"

	"monotron/csrc/device"
	"monotron/fault"
	"monotron/megatron/checkpoint/formats"
	"monotron/megatron/checkpoint/formats/safetensors"
	"monotron/mpu"
)

// restorer copies pieces of files to pieces of local buffers.
type restorer struct {
	folder  *Folder
	dev     *device.Device
	buf     []byte // of the file
	report  *Report
	touched map[string]bool
}

// tensor fills all local pieces of t. Each stored piece that shares elements
// with them is read once, from start to end, so that its checksum is known.
func (r *restorer) tensor(have *Tensor, t mpu.Stored) error {
	flat := t.Tensor.Reshape(t.Tensor.Len())
	for _, p := range have.Pieces {
		var shared []*formats.Overlap // one a local piece, standing where the stream is
		var locals []int64
		for _, local := range t.Pieces {
			if o := formats.NewOverlap(p.box(), local); o.OK {
				shared, locals = append(shared, o), append(locals, local.Local)
			}
		}
		if len(shared) == 0 {
			continue
		}
		c := copier{r: r, have: have, flat: flat, shared: shared, locals: locals}
		if err := r.folder.Stream(have, p, r.buf, c.chunk); err != nil {
			return err
		}
		r.report.Bytes += have.Bytes(p)
	}
	r.report.Restored = append(r.report.Restored, t.Name)
	return nil
}

// copier hands the chunks of one stored piece out to the local pieces.
type copier struct {
	r      *restorer
	have   *Tensor
	flat   device.Tensor // the whole local buffer
	shared []*formats.Overlap
	locals []int64
}

func (c *copier) chunk(at int64, chunk []byte) error {
	width := dtypeOf[c.have.DType].Size()
	first, end := at/width, (at+int64(len(chunk)))/width // elements of the stored piece
	for i, o := range c.shared {
		for o.OK && o.InA < end {
			n := min(o.N, end-o.InA)
			from := (o.InA - first) * width
			if err := c.write(c.flat.Slice(0, c.locals[i]+o.InB, n), chunk[from:from+n*width]); err != nil {
				return err
			}
			o.Take(n)
		}
	}
	return nil
}

// write puts stored elements into the device's memory, in its dtype.
func (c *copier) write(dst device.Tensor, raw []byte) error {
	c.r.touched[c.have.Name] = true
	if want := dtypeName[dst.DType]; want != c.have.DType {
		values := make([]float64, dst.Len())
		known := safetensors.Decode(values, c.have.DType, raw)
		converted, ok := safetensors.Encode(nil, want, values)
		if !known || !ok {
			return fault.Errorf(fault.Internal, "checkpoint: %s cannot become %s", c.have.DType, want)
		}
		raw = converted
	}
	c.r.dev.Write(dst, raw)
	if err := c.r.dev.Err(); err != nil {
		return fmt.Errorf("checkpoint: writing tensor %q to the device: %w", c.have.Name, err)
	}
	return nil
}
