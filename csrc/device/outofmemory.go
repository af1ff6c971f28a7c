package device

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// OutOfMemory is the panic value of Alloc.
type OutOfMemory struct {
	Purpose Purpose // of the request
	Bytes   int64
	For     Tensor          // its dtype and shape
	Used    [Purposes]int64 // bytes
	Largest []Holder        // at most five, the largest first
	Graphs  int64           // bytes of Used that graphs keep, and nothing lies in
	Fused   int64           // bytes of Used that FuseAttention asked for
	While   string          // what was computed, where a layer can say more; ""
	Cause   error
}

// broken is why memory cannot be had of a device that has failed: there may be enough.
type broken struct{ error }

func (b *broken) Unwrap() error { return b.error }

// lack is what Alloc panics with: OutOfMemory, or the failure that came before.
func (a *Arena) lack(bytes int64, p Purpose, t Tensor, cause error) error {
	var failed *broken
	if errors.As(cause, &failed) {
		return failed
	}
	return &OutOfMemory{Purpose: p, Bytes: bytes, For: t, Used: a.now, Largest: a.largest(), Graphs: a.idle(), Fused: a.device.FusedWorkspace(), Cause: cause}
}

// shortage is an op's lack of memory for what it works in.
type shortage struct {
	op    Op
	bytes int64
	cause error
}

func (s *shortage) Error() string { return fmt.Sprintf("%s: %v", s.op, s.cause) }
func (s *shortage) Unwrap() error { return s.cause }

// afford panics, as Alloc does, where an op lacked memory; other errors it returns. What is
// taken down as a graph can be done without one.
func (d *Device) afford(err error) error {
	var s *shortage
	if d.taking == nil && errors.As(err, &s) {
		panic(d.Arena.lack(s.bytes, Workspace, View(nil, I32, (s.bytes+3)/4), s))
	}
	return err
}

// CatchOutOfMemory, deferred, makes an Alloc's panic the error of the function it
// ends; other panics continue.
func CatchOutOfMemory(err *error) {
	switch p := recover().(type) {
	case nil:
	case *OutOfMemory:
		*err = p
	case *broken:
		*err = p.error
	default:
		panic(p)
	}
}

// Holder is the blocks that hold tensors of one purpose, dtype and shape.
type Holder struct {
	Purpose Purpose
	Of      Tensor // dtype and shape of each
	Blocks  int64
	Bytes   int64 // of all
}

func (h Holder) String() string {
	return fmt.Sprintf("%s %s: %d of %s", Size(h.Bytes), h.Purpose, h.Blocks, kind(h.Of))
}

// Total is all memory in use, in bytes.
func (e *OutOfMemory) Total() (n int64) {
	for _, bytes := range e.Used {
		n += bytes
	}
	return n
}

func (e *OutOfMemory) Error() string {
	text := fmt.Sprintf("out of device memory: %s for %s (%s) with %s allocated: %v", Size(e.Bytes), e.Purpose, kind(e.For), Size(e.Total()), e.Cause)
	if e.While != "" {
		text += "; the memory was for the " + e.While
	}
	if len(e.Largest) == 0 {
		return text
	}
	var lines []string
	for _, h := range e.Largest {
		lines = append(lines, h.String())
	}
	return text + "; the largest: " + strings.Join(lines, ", ")
}

func (e *OutOfMemory) Unwrap() error { return e.Cause }

// kind is a tensor's dtype and shape, "bf16 2048x768".
func kind(t Tensor) string {
	return t.DType.String() + " " + strings.ReplaceAll(strings.Trim(fmt.Sprint(t.Dims()), "[]"), " ", "x")
}

// Size writes bytes for a person.
func Size(bytes int64) string {
	switch {
	case bytes >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(bytes)/(1<<30))
	case bytes >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
	}
	return fmt.Sprintf("%d bytes", bytes)
}

// largest are the five kinds of tensors that hold most.
func (a *Arena) largest() []Holder {
	sums := map[string]*Holder{}
	for _, b := range a.used {
		key := b.purpose.String() + kind(b.holds)
		if sums[key] == nil {
			t := b.holds
			t.Data = nil
			sums[key] = &Holder{Purpose: b.purpose, Of: t}
		}
		sums[key].Blocks++
		sums[key].Bytes += b.bytes
	}
	var all []Holder
	for _, h := range sums {
		all = append(all, *h)
	}
	slices.SortFunc(all, func(x, y Holder) int {
		return cmp.Or(cmp.Compare(y.Bytes, x.Bytes), cmp.Compare(x.String(), y.String()))
	})
	return all[:min(5, len(all))]
}
