package jinja

// Limits bound a render. They are counts, so that the same template and values end the same way
// on every machine.
type Limits struct {
	Steps  int64 // nodes evaluated, items taken, and pieces of 32 bytes read
	Memory int64 // bytes of all values made, whether still in use or not
	Output int64 // bytes of text
	Depth  int   // macros and recursive loops in each other
}

// DefaultLimits are for templates and values of strangers.
var DefaultLimits = Limits{Steps: 10_000_000, Memory: 256 << 20, Output: 16 << 20, Depth: 180}

// deepest is how far values may be nested where they are printed, compared or hashed.
const deepest = 500

// mostDigits is Python's bound on the digits of an int that becomes text or comes from it.
const mostDigits = 4300

// step counts n units of work.
func (r *run) step(n int) {
	r.steps += int64(n)
	if n < 0 || r.steps > r.limits.Steps {
		fail("Limit", "the template runs for more than %d steps", r.limits.Steps)
	}
}

// scan counts a pass over n bytes.
func (r *run) scan(n int) { r.step(1 + n>>5) }

// alloc counts n bytes that are about to be made.
func (r *run) alloc(n int) {
	r.memory += int64(n)
	if n < 0 || r.memory > r.limits.Memory {
		fail("Limit", "the template creates values of more than %d MiB", r.limits.Memory>>20)
	}
}

// allocTimes counts count things of size bytes each, however large the numbers.
func (r *run) allocTimes(count, size int) {
	if count > 0 && int64(size) > r.limits.Memory/int64(count) {
		fail("Limit", "the template creates values of more than %d MiB", r.limits.Memory>>20)
	}
	if count > 0 {
		r.alloc(count * size)
		r.step(count * size >> 5)
	}
}

// text counts a new string and returns it.
func (r *run) text(s string) string {
	r.alloc(len(s) + 16)
	r.scan(len(s))
	return s
}

// deep fails where values are nested too far.
func (r *run) deep(depth int) {
	if depth > deepest {
		fail("Limit", "values are nested more than %d deep", deepest)
	}
}

// enter counts a macro or recursive loop that begins; leave, its end.
func (r *run) enter() {
	if r.depth++; r.depth > r.limits.Depth {
		fail("Limit", "macros or recursive loops are nested more than %d deep", r.limits.Depth)
	}
}

func (r *run) leave() { r.depth-- }

// buffer collects what a part of the template writes.
type buffer struct {
	b    []byte
	most int64 // bytes; 0: only memory bounds it
}

func (r *run) write(out *buffer, s string) {
	if out.most > 0 && int64(len(out.b)+len(s)) > out.most {
		fail("Limit", "the template writes more than %d MiB", out.most>>20)
	}
	r.scan(len(s))
	if need := len(out.b) + len(s); need > cap(out.b) {
		grown := max(2*cap(out.b), need)
		r.alloc(grown)
		out.b = append(make([]byte, 0, grown), out.b...)
	}
	out.b = append(out.b, s...)
}

// take is a buffer's text.
func (r *run) take(b *buffer) string {
	r.alloc(len(b.b) + 16)
	return string(b.b)
}
