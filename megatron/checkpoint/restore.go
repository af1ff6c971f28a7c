package checkpoint

import (
	"fmt"
	"math"
	"runtime"
	"sync"

	"monotron/csrc/device"
	"monotron/fault"
	"monotron/megatron/checkpoint/formats"
	"monotron/megatron/checkpoint/formats/safetensors"
	"monotron/mpu"
)

// restorer copies pieces of files to pieces of local buffers. Several goroutines
// read and check pieces; the one that owns the device writes to it.
type restorer struct {
	folder  *Folder
	dev     *device.Device
	report  *Report
	touched map[string]bool
	jobs    []*copier
}

// add lists the stored pieces that share elements with those of t, each with the
// stretch that is read of it.
func (r *restorer) add(have *Tensor, t mpu.Stored) {
	flat := t.Tensor.Reshape(t.Tensor.Len())
	for _, p := range have.Pieces {
		c := &copier{r: r, have: have, piece: p, flat: flat, from: math.MaxInt64}
		width := dtypeOf[have.DType].Size()
		for _, local := range t.Pieces {
			if o := formats.NewOverlap(p.box(), local); o.OK {
				c.shared, c.locals = append(c.shared, o), append(c.locals, local.Local)
				first, end := o.Span()
				c.from, c.to = min(c.from, first*width), max(c.to, end*width)
			}
		}
		if len(c.shared) > 0 {
			r.jobs = append(r.jobs, c)
			r.report.Bytes += c.to - c.from
		}
	}
	r.report.Restored = append(r.report.Restored, t.Name)
}

// delivery is a chunk of a piece, or the error that ended it. The reader waits
// for done before it fills its buffer again.
type delivery struct {
	to    *copier
	at    int64
	chunk []byte
	err   error
	done  chan error
}

// run reads and writes everything that was added.
func (r *restorer) run() error {
	for _, c := range r.jobs { // opening is not for several goroutines
		if _, err := r.folder.file(c.piece.File); err != nil {
			return fault.With(fault.IO, err)
		}
	}
	next, out, stop := make(chan *copier), make(chan delivery), make(chan struct{})
	var readers sync.WaitGroup
	for range min(len(r.jobs), 1+runtime.GOMAXPROCS(0), maxReaders) {
		readers.Go(func() { r.read(next, out, stop) })
	}
	go func() {
		defer close(next)
		for _, c := range r.jobs {
			select {
			case next <- c:
			case <-stop:
				return
			}
		}
	}()
	go func() {
		readers.Wait()
		close(out)
	}()
	var first error
	for d := range out {
		err := d.err
		if err == nil && first == nil {
			err = d.to.chunk(d.at, d.chunk)
		}
		if err != nil && first == nil {
			first = err
			close(stop)
		}
		d.done <- first
	}
	return first
}

// maxReaders bounds the buffers of a load.
const maxReaders = 4

// read delivers pieces until there are no more.
func (r *restorer) read(next <-chan *copier, out chan<- delivery, stop <-chan struct{}) {
	buf := r.folder.buffer()
	done := make(chan error)
	for c := range next {
		err := r.folder.StreamPart(c.have, c.piece, c.from, c.to, buf, func(at int64, chunk []byte) error {
			out <- delivery{to: c, at: at, chunk: chunk, done: done}
			return <-done
		})
		select {
		case <-stop:
			return
		default:
		}
		if err != nil {
			out <- delivery{to: c, err: err, done: done}
			<-done
			return
		}
	}
}

// copier hands the chunks of one stored piece out to the local pieces.
type copier struct {
	r      *restorer
	have   *Tensor
	piece  Piece
	flat   device.Tensor // the whole local buffer
	shared []*formats.Overlap
	locals []int64

	from, to int64 // bytes of the piece that are shared
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
