package native

import (
	"context"
	"fmt"
	"unsafe"

	"monotron/csrc/device"
	"monotron/internal/osadvice"
	"monotron/internal/system"
	"monotron/mpu"
)

// Pending is a save that continues while training does.
type Pending struct {
	copied chan struct{} // closed when the tensors may change
	done   chan struct{}
	report Report
	err    error
}

// Copied returns when the tensors may change.
func (p *Pending) Copied() { <-p.copied }

// Wait returns when the save is over; its report and error are as Save's.
func (p *Pending) Wait() (Report, error) {
	<-p.done
	return p.report, p.err
}

// Done reports whether Wait would return at once.
func (p *Pending) Done() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Then continues with next in the background when the save is over, and is pending
// until that is.
func (p *Pending) Then(next func(Report, error) (Report, error)) *Pending {
	q := &Pending{copied: p.copied, done: make(chan struct{})}
	go func() {
		defer close(q.done)
		q.report, q.err = next(p.Wait())
	}()
	return q
}

// SaveAsync copies this rank's pieces to host memory, which must have space for
// them, and writes them in the background. Where the device's memory is the
// host's, copying is in the background too: the tensors may be read, but not
// change before Copied returns. One save of a run is under way at a time: Wait
// before the next, and before the process ends.
func SaveAsync(ctx context.Context, dir string, st State, tensors []mpu.Stored, dev *device.Device, o SaveOptions) (*Pending, error) {
	s, err := newSaver(dir, st, tensors, dev, o)
	if err != nil {
		return nil, err
	}
	p := &Pending{copied: make(chan struct{}), done: make(chan struct{})}
	if dev.OnHost() {
		go p.run(ctx, s)
		return p, nil
	}
	free, err := s.snapshot()
	if err != nil {
		return nil, err
	}
	close(p.copied)
	go p.write(ctx, s, free)
	return p, nil
}

// run is all of a save in the background.
func (p *Pending) run(ctx context.Context, s *saver) {
	free, err := s.snapshot()
	close(p.copied)
	if err != nil { // of a device on the host: none
		p.err = err
		close(p.done)
		return
	}
	p.write(ctx, s, free)
}

func (p *Pending) write(ctx context.Context, s *saver, free func()) {
	defer close(p.done)
	defer free()
	p.report, p.err = s.run(ctx)
}

// snapshot reads all parts into host memory; from there they are written.
func (s *saver) snapshot() (free func(), err error) {
	copied, free := hostMemory(s.report.Bytes)
	for i := range s.parts {
		n := s.parts[i].piece.Len() * s.parts[i].dtype.Size()
		if err := s.parts[i].snapshot(copied[:n:n]); err != nil {
			free()
			return nil, err
		}
		copied = copied[n:]
	}
	return free, nil
}

// hostMemory is n bytes in large pages where the system has them: filling small
// ones for the first time takes longer than the copy.
func hostMemory(n int64) (b []byte, free func()) {
	const large = 2 << 20
	if n >= large {
		if p, err := system.MapMemory(n); err == nil {
			b := unsafe.Slice((*byte)(p), n)
			osadvice.HugePages(b)
			return b, func() { system.UnmapMemory(p, n) }
		}
	}
	return make([]byte, n), func() {}
}

// snapshot reads the part into copied now, instead of when it is written.
func (p *part) snapshot(copied []byte) error {
	for at := 0; at < len(copied); at += chunkBytes {
		if err := p.read(copied[at:min(len(copied), at+chunkBytes)], int64(at)); err != nil {
			return fmt.Errorf("checkpoint: reading tensor %q from the device: %w", p.name, err)
		}
	}
	p.read = func(dst []byte, at int64) error {
		copy(dst, copied[at:])
		return nil
	}
	return nil
}
