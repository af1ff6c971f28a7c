package health

import (
	"encoding/binary"
	"math"
	"slices"
)

// fields writes or reads the fields of a heartbeat or a report, one after the other: one list of them serves both. Rank 0
// reads a heartbeat of each rank every second, and a report of each when a run fails; JSON would take it ten times as long.
type fields struct {
	bytes   []byte // written so far, or left to be read
	reading bool
	bad     bool // what was read ended too early, or has a number that does not fit

	// Of a report, whose calls are much alike.
	shares bool
	texts  []string // that it has had so far
	last   int64    // time that it has had last
}

// number is one integer.
func number[T ~int | ~int32 | ~int64 | ~uint32](f *fields, p *T) {
	if !f.reading {
		f.bytes = binary.AppendVarint(f.bytes, int64(*p))
		return
	}
	v, n := binary.Varint(f.bytes)
	if n <= 0 || int64(T(v)) != v {
		f.fail()
		return
	}
	*p, f.bytes = T(v), f.bytes[n:]
}

// fail ends the reading: what follows reads as nothing.
func (f *fields) fail() { f.bad, f.bytes = true, nil }

// count is how many of a list follow; each takes a byte at least.
func (f *fields) count(n int) int {
	number(f, &n)
	if f.reading && (n < 0 || n > len(f.bytes)) {
		f.fail()
		return 0
	}
	return n
}

// text is a text. One that a report has had already is a number.
func (f *fields) text(p *string) {
	if f.shares {
		at := 0 // it is new
		if !f.reading {
			at = slices.Index(f.texts, *p) + 1
		}
		number(f, &at)
		switch {
		case at < 0 || at > len(f.texts):
			f.fail()
			return
		case at > 0:
			*p = f.texts[at-1]
			return
		}
		defer func() { f.texts = append(f.texts, *p) }()
	}
	n := f.count(len(*p))
	switch {
	case !f.reading:
		f.bytes = append(f.bytes, *p...)
	case !f.bad:
		*p, f.bytes = string(f.bytes[:n]), f.bytes[n:]
	}
}

// time is a time. A report has its distance from the one before it.
func (f *fields) time(p *int64) {
	if !f.shares {
		number(f, p)
		return
	}
	apart := *p - f.last
	number(f, &apart)
	if f.reading {
		*p = f.last + apart
	}
	f.last = *p
}

func (f *fields) flags(list ...*bool) {
	bits := 0
	for i, p := range list {
		if *p {
			bits |= 1 << i
		}
	}
	number(f, &bits)
	for i, p := range list {
		*p = bits>>i&1 == 1
	}
}

func (f *fields) seconds(list *[Phases]float64) {
	for i := range list {
		switch {
		case !f.reading:
			f.bytes = binary.LittleEndian.AppendUint64(f.bytes, math.Float64bits(list[i]))
		case len(f.bytes) < 8:
			f.fail()
			return
		default:
			list[i], f.bytes = math.Float64frombits(binary.LittleEndian.Uint64(f.bytes)), f.bytes[8:]
			if !(math.Abs(list[i]) <= math.MaxFloat64) {
				f.fail()
				return
			}
		}
	}
}

// messages are numbers by rank.
func (f *fields) messages(m *map[int32]uint32) {
	n := f.count(len(*m))
	if !f.reading {
		for peer, sent := range *m {
			number(f, &peer)
			number(f, &sent)
		}
		return
	}
	if n > 0 {
		*m = make(map[int32]uint32, n)
	}
	for range n {
		var peer int32
		var sent uint32
		number(f, &peer)
		number(f, &sent)
		(*m)[peer] = sent
	}
}

// list is a list whose items have fields.
func list[T any](f *fields, p *[]T, item func(*T)) {
	n := f.count(len(*p))
	if f.reading && n > 0 {
		*p = slices.Grow(*p, min(n, 64))
	}
	for i := range n {
		if f.reading {
			var zero T
			*p = append(*p, zero)
		}
		item(&(*p)[i])
		if f.bad {
			return
		}
	}
}

func (f *fields) beat(b *Beat) {
	number(f, &b.Phase)
	for _, p := range []*int64{&b.Step, &b.Since, &b.Calls, &b.Ended, &b.Marks, &b.Outside, &b.Waited, &b.Steps} {
		number(f, p)
	}
	waits := b.Waiting != nil
	f.flags(&b.Stalled, &b.Busy, &waits)
	f.seconds(&b.Own)
	f.seconds(&b.Longest)
	list(f, &b.Groups, func(c *Count) {
		number(f, &c.Entered)
		f.messages(&c.Sent)
		f.messages(&c.Received)
	})
	if waits && f.reading {
		b.Waiting = &Call{}
	}
	if waits {
		f.call(b.Waiting)
	}
}

func (f *fields) call(c *Call) {
	for _, p := range []*int64{&c.Number, &c.Seq, &c.Count, &c.Step} {
		number(f, p)
	}
	f.time(&c.Start)
	f.time(&c.End)
	number(f, &c.Op)
	number(f, &c.Reduce)
	number(f, &c.Root)
	for _, p := range []*string{&c.Group, &c.DType, &c.Phase, &c.Site, &c.Outer} {
		f.text(p)
	}
	list(f, &c.Messages, func(m *Message) {
		number(f, &m.Peer)
		f.flags(&m.Send)
		number(f, &m.Number)
	})
}

// report is a report, but for why the rank fails.
func (f *fields) report(r *Report) {
	f.shares = true
	list(f, &r.Calls, f.call)
	f.shares = false
	text := string(r.Stack)
	f.text(&text)
	if f.reading && text != "" {
		r.Stack = []byte(text)
	}
}
