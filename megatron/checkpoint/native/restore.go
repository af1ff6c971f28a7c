package native

import (
	"fmt"
	"math"
	"sync"
	"unsafe"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/internal/safetensors"
	"monotron/megatron/checkpoint"
	"monotron/mpu"
)

// restorer copies pieces of files to pieces of local buffers. Several goroutines
// read and check spans of pieces. Where the device's memory is the host's they
// fill it themselves, without a copy between where a span lies in one stretch;
// else the one that owns the device writes to it.
type restorer struct {
	folder *Folder
	dev    *device.Device
	report *Report
	jobs   []*copier

	mu      sync.Mutex
	touched map[string]bool
}

// fillByPieces fills the tensors of this rank from the pieces of a native checkpoint's
// files. touched names those that were written to, also when it ends with an error.
func fillByPieces(src checkpoint.Source, found []*checkpoint.Tensor, tensors []mpu.Stored, dev *device.Device, report *Report, touched map[string]bool) error {
	s := src.(*source)
	r := restorer{folder: s.folder, dev: dev, report: report, touched: touched}
	for i, t := range tensors {
		if found[i] != nil {
			r.add(s.index[t.Name], t)
		}
	}
	return r.run()
}

// add lists the stored pieces that share elements with those of t, in spans.
func (r *restorer) add(have *Tensor, t mpu.Stored) {
	flat := t.Tensor.Reshape(t.Tensor.Len())
	width := dtypeOf[have.DType].Size()
	for _, p := range have.Pieces {
		var locals []mpu.Piece
		from, to := int64(math.MaxInt64), int64(0)
		for _, local := range t.Pieces {
			if o := checkpoint.NewOverlap(p.box(), local); o.OK {
				locals = append(locals, local)
				first, end := o.Span()
				from, to = min(from, first*width), max(to, end*width)
			}
		}
		if len(locals) == 0 {
			continue
		}
		r.report.Bytes += to - from
		for _, span := range have.spans(p, from, to) {
			r.jobs = append(r.jobs, &copier{r: r, have: have, piece: p, flat: flat, locals: locals, from: span[0], to: span[1]})
		}
	}
	r.report.Restored = append(r.report.Restored, t.Name)
}

// spanBytes of a long piece are read by one goroutine. They are few, so that readers
// side by side are one stream to the disk's readahead, and not one each.
const spanBytes = 2 << 20

// spans cuts what is wanted of a piece, bytes [from, to), into parts that can be
// checked alone: complete blocks where it has their sums, else the complete piece.
func (t *Tensor) spans(p Piece, from, to int64) (list [][2]int64) {
	total := t.Bytes(p)
	if p.Blocks == "" {
		return [][2]int64{{0, total}}
	}
	from, to = from/blockBytes*blockBytes, min(total, (to+blockBytes-1)/blockBytes*blockBytes)
	for at := from; at < to; at += spanBytes {
		list = append(list, [2]int64{at, min(to, at+spanBytes)})
	}
	return list
}

// delivery is a chunk of a span, or the error that ended it. The reader waits
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
	for _, c := range r.jobs { // an error of opening comes before all others
		if _, err := r.folder.file(c.piece.File); err != nil {
			return exitcode.With(exitcode.IO, err)
		}
	}
	// Jobs go to the readers by next, what they read comes back by out; stop ends both early.
	next, out, stop := make(chan *copier), make(chan delivery), make(chan struct{})
	var readers sync.WaitGroup
	for range min(len(r.jobs), max(minReaders, device.Cores()), maxReaders) {
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
	// One goroutine writes to the tensors. After an error it only answers, so that no reader waits forever.
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

// Readers of a load: some more than cores, as they wait for the disk; not more
// than buffers should be.
const minReaders, maxReaders = 4, 8

// read does spans until none are left.
func (r *restorer) read(next <-chan *copier, out chan<- delivery, stop <-chan struct{}) {
	buf := r.folder.buffer()
	done := make(chan error)
	for c := range next {
		var err error
		if r.dev.OnHost() {
			err = c.fill(buf)
		} else {
			err = r.folder.readSpan(c.have, c.piece, c.from, c.to, into(buf), func(at int64, chunk []byte) error {
				out <- delivery{to: c, at: at, chunk: chunk, done: done}
				return <-done
			})
		}
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

// copier hands the chunks of one span of a stored piece out to the local pieces.
type copier struct {
	r      *restorer
	have   *Tensor
	piece  Piece
	flat   device.Tensor // the complete local buffer
	locals []mpu.Piece   // that share elements with the piece

	from, to int64                 // bytes of the piece
	shared   []*checkpoint.Overlap // with locals, from the span's first element on
}

// fill reads the span into host memory: straight to its destination, or through buf.
func (c *copier) fill(buf []byte) error {
	if target := c.target(); target != nil {
		c.touch()
		direct := func(at int64, n int64) []byte { return target[at-c.from:][:n] }
		return c.r.folder.readSpan(c.have, c.piece, c.from, c.to, direct, func(int64, []byte) error { return nil })
	}
	return c.r.folder.readSpan(c.have, c.piece, c.from, c.to, into(buf), c.chunk)
}

// target is the memory that the complete span belongs to, nil where it is not one
// stretch of the same type.
func (c *copier) target() []byte {
	width := dtypeOf[c.have.DType].Size()
	if c.shared = c.overlaps(); len(c.shared) != 1 || c.flat.Offloaded() || dtypeName[c.flat.DType] != c.have.DType {
		return nil
	}
	o := c.shared[0]
	if !o.OK || o.InA != c.from/width || o.N < (c.to-c.from)/width {
		return nil
	}
	at := (c.locals[0].Local + o.InB) * width
	return unsafe.Slice((*byte)(unsafe.Add(c.flat.Data, at)), c.to-c.from)
}

// overlaps walk what the span shares with the local pieces.
func (c *copier) overlaps() []*checkpoint.Overlap {
	first := c.from / dtypeOf[c.have.DType].Size()
	list := make([]*checkpoint.Overlap, len(c.locals))
	for i, local := range c.locals {
		o := checkpoint.NewOverlap(c.piece.box(), local)
		for o.OK && o.InA+o.N <= first {
			o.Take(o.N)
		}
		if o.OK && o.InA < first {
			o.Take(first - o.InA)
		}
		list[i] = o
	}
	return list
}

func (c *copier) chunk(at int64, chunk []byte) error {
	if c.shared == nil {
		c.shared = c.overlaps()
	}
	c.touch()
	width := dtypeOf[c.have.DType].Size()
	first, end := at/width, (at+int64(len(chunk)))/width // elements of the stored piece
	for i, o := range c.shared {
		for o.OK && o.InA < end {
			n := min(o.N, end-o.InA)
			from := (o.InA - first) * width
			if err := c.write(c.flat.Slice(0, c.locals[i].Local+o.InB, n), chunk[from:from+n*width]); err != nil {
				return err
			}
			o.Take(n)
		}
	}
	return nil
}

func (c *copier) touch() {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	c.r.touched[c.have.Name] = true
}

// write puts stored elements into the device's memory, in its dtype.
func (c *copier) write(dst device.Tensor, raw []byte) error {
	if want := dtypeName[dst.DType]; want != c.have.DType {
		values := make([]float64, dst.Len())
		known := safetensors.Decode(values, c.have.DType, raw)
		converted, ok := safetensors.Encode(nil, want, values)
		if !known || !ok {
			return exitcode.Errorf(exitcode.Internal, "checkpoint: internal error: values of type %s cannot be converted to %s; report this, and include the command line", c.have.DType, want)
		}
		raw = converted
	}
	if dst.Offloaded() {
		return c.r.dev.Put(dst, raw) // whose goroutine it is does not matter
	}
	if c.r.dev.OnHost() {
		copy(unsafe.Slice((*byte)(dst.Data), len(raw)), raw)
		return nil
	}
	c.r.dev.Write(dst, raw)
	if err := c.r.dev.Err(); err != nil {
		return fmt.Errorf("checkpoint: writing tensor %q to the device: %w", c.have.Name, err)
	}
	return nil
}
