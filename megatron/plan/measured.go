package plan

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"monotron/csrc/device"
)

// OpTimes is what an op took at several sizes on a machine whose ranks share its threads.
type OpTimes struct {
	Op    string `yaml:"op"`
	Form  string `yaml:"form"`  // its shape, # for every number: f32 #x#x# nt
	Ranks int    `yaml:"ranks"` // that computed at the same time: 1, with all threads, or one a thread

	// Each row: the form's numbers in their order, operations, bytes, seconds.
	Times [][]float64 `yaml:"times,flow"`

	least, flop, byte float64 // seconds of the smallest, and at best of an operation and of a byte
}

// CollectiveTimes is what a collective took.
type CollectiveTimes struct {
	Op     string `yaml:"op"`
	DType  string `yaml:"dtype"`
	Ranks  int    `yaml:"ranks"`  // of a group
	Groups int    `yaml:"groups"` // at the same time

	Processes bool `yaml:"processes,omitempty"` // ranks were processes: kept for people, runs of goroutines are planned

	Times [][]float64 `yaml:"times,flow"` // each row: bytes of a rank's share, seconds of a round
}

// Disk is how fast files go.
type Disk struct {
	Write float64 `yaml:"write_bytes_per_second"` // until they are on the disk
	Read  float64 `yaml:"read_bytes_per_second"`  // not from memory
}

// Form takes the numbers out of an op's shape.
func Form(shape string) (form string, numbers []float64) {
	var b strings.Builder
	for i := 0; i < len(shape); {
		end := i
		for end < len(shape) && shape[end] >= '0' && shape[end] <= '9' {
			end++
		}
		name := i > 0 && shape[i-1] >= 'a' && shape[i-1] < 'x' // as in bf16
		if end == i || name {
			end = max(end, i+1)
			b.WriteString(shape[i:end])
			i = end
			continue
		}
		x := 0.0
		for _, digit := range shape[i:end] {
			x = 10*x + float64(digit-'0')
		}
		numbers = append(numbers, x)
		b.WriteByte('#')
		i = end
	}
	return b.String(), numbers
}

// measuredKey is what ops that compare have in common.
type measuredKey struct {
	op, form string
	ranks    int
}

// measured finds the times of a machine file.
type measured struct {
	threads  int
	ops      map[measuredKey]*OpTimes
	kinds    map[measuredKey][]*OpTimes // of every form, where form is ""
	all      []CollectiveTimes
	meetings []MeetingTimes
	many     int // ranks of ops that were measured with more ranks than threads; 0: none

	mu   sync.Mutex
	said map[string]opSeconds // of a shape
}

// index makes the times ready to be asked.
func (m *Machine) index() {
	x := &measured{threads: m.Threads, ops: map[measuredKey]*OpTimes{}, kinds: map[measuredKey][]*OpTimes{}, all: m.Collectives, meetings: m.Meetings, said: map[string]opSeconds{}}
	for i := range m.Ops {
		o := &m.Ops[i]
		if o.Ranks > max(1, m.Threads) {
			x.many = o.Ranks
		}
		o.rates()
		x.ops[measuredKey{o.Op, o.Form, o.Ranks}] = o
		kind := measuredKey{o.Op, "", o.Ranks}
		x.kinds[kind] = append(x.kinds[kind], o)
	}
	m.measured = x
}

// checkMeasured checks what `monotron measure` writes.
func (m *Machine) checkMeasured() (problems []error) {
	add := func(format string, a ...any) { problems = append(problems, fmt.Errorf(format, a...)) }
	// Threads and ops belong together.
	if m.Threads < 0 || m.Threads > 1<<12 {
		add("threads is %d; it must be from 0 to %d", m.Threads, 1<<12)
	}
	if m.Threads == 0 && len(m.Ops)+len(m.Collectives) > 0 {
		add("threads is missing; give the number of threads that the ranks of ops and collectives share")
	}
	if m.Threads > 0 && len(m.Ops) == 0 {
		add("ops is missing, although threads is given; create the file with monotron measure")
	}
	// Every row: as many numbers as the form has, then operations, bytes and seconds.
	rows := func(what string, times [][]float64, width int) {
		if len(times) == 0 {
			add("%s: times is empty; give at least one row", what)
		}
		for _, row := range times {
			if len(row) != width || slices.ContainsFunc(row, func(x float64) bool { return !(x >= 0 && x < 1e24) }) || width > 0 && len(row) == width && !(row[width-1] > 0) {
				add("%s: a row is %v; it must be %d numbers of 0 or more, the last of which is seconds", what, row, width)
				return
			}
		}
	}
	for i := range m.Ops {
		o := &m.Ops[i]
		if o.Ranks != 1 && o.Ranks != m.Threads && o.Ranks != 2*m.Threads {
			add("ops %s %s: ranks is %d; it must be 1, the value of threads, or twice that value", o.Op, o.Form, o.Ranks)
		}
		rows("ops "+o.Op+" "+o.Form, o.Times, strings.Count(o.Form, "#")+3)
	}
	for i := range m.Collectives {
		c := &m.Collectives[i]
		if c.Ranks < 2 || c.Groups < 1 || c.Ranks > 1<<16 || c.Groups > 1<<16 {
			add("collectives %s: there are %d ranks in %d groups; there must be at least 2 ranks in 1 group", c.Op, c.Ranks, c.Groups)
		}
		rows("collectives "+c.Op, c.Times, 2)
	}
	// Rates of the disk, and how far two cores are apart.
	if m.Disk.Write < 0 || m.Disk.Read < 0 || m.Disk.Write != m.Disk.Write || m.Disk.Read != m.Disk.Read {
		add("disk: a rate is negative; rates must be 0 (not known) or more")
	}
	if !(m.Apart >= 0 && m.Apart < 1) {
		add("core_round_trip_seconds is %g; it must be from 0 to 1", m.Apart)
	}
	return append(problems, m.checkMeetings()...)
}

// rates are the best that any of the times shows.
func (o *OpTimes) rates() {
	o.least, o.flop, o.byte = math.Inf(1), math.Inf(1), math.Inf(1)
	for _, row := range o.Times {
		n := len(row)
		o.least = min(o.least, row[n-1])
		if row[n-3] > 0 {
			o.flop = min(o.flop, row[n-1]/row[n-3])
		}
		if row[n-2] > 0 {
			o.byte = min(o.byte, row[n-1]/row[n-2])
		}
	}
	for _, x := range []*float64{&o.flop, &o.byte} {
		if math.IsInf(*x, 1) {
			*x = 0
		}
	}
}

// bound is what so much work takes at the best rates.
func (o *OpTimes) bound(flops, bytes float64) float64 {
	return o.least/2 + flops*o.flop + bytes*o.byte
}

// near is how many of the measured sizes say what another takes.
const near = 6

// seconds of work of a size: the bound, times what the nearest measured sizes took of theirs.
// without leaves one row out (negative: none).
func (o *OpTimes) seconds(numbers []float64, w device.Work, without int) float64 {
	// How far each measured size is, in logarithms of its numbers or, for another form, of operations
	// and bytes; and its time as a multiple of the bound.
	type neighbour struct{ far, ratio float64 }
	var all []neighbour
	same := len(o.Times[0]) == len(numbers)+3
	for i, row := range o.Times {
		if i == without {
			continue
		}
		n, far := len(row), 0.0
		if same {
			for j, x := range numbers {
				far += square(math.Log2(max(1, x)) - math.Log2(max(1, row[j])))
			}
		} else {
			far = square(math.Log2(max(1, w.FLOPs))-math.Log2(max(1, row[n-3]))) + square(math.Log2(max(1, w.Bytes))-math.Log2(max(1, row[n-2])))
		}
		all = append(all, neighbour{far, math.Log(row[n-1] / o.bound(row[n-3], row[n-2]))})
	}
	if len(all) == 0 {
		return o.bound(w.FLOPs, w.Bytes)
	}
	// The nearest ones, weighted by the inverse square of how far they are.
	slices.SortFunc(all, func(a, b neighbour) int { return cmp.Compare(a.far, b.far) })
	sum, weights := 0.0, 0.0
	for _, n := range all[:min(near, len(all))] {
		weight := 1 / square(n.far+1e-6)
		sum, weights = sum+weight*n.ratio, weights+weight
	}
	return o.bound(w.FLOPs, w.Bytes) * math.Exp(sum/weights)
}

func square(x float64) float64 { return x * x }

// opSeconds is what an op takes: alone with all threads, on one thread while others compute, and
// there while more ranks than threads take turns, whose data push each other out of the caches.
type opSeconds struct{ alone, one, many float64 }

// measuredOp is what an op takes. One that was not measured takes what its operations and bytes take.
func (m *Machine) measuredOp(a *device.Shown) opSeconds {
	shape, name := a.Shape(), a.Op.String()
	x := m.measured
	key := name + " " + shape
	// Each shape is computed once.
	x.mu.Lock()
	defer x.mu.Unlock()
	said, is := x.said[key]
	if is {
		return said
	}
	// The same form where it was measured, else the nearest form of the op.
	form, numbers := Form(shape)
	of := func(ranks int) (float64, bool) {
		o, is := x.ops[measuredKey{name, form, ranks}]
		if is {
			return o.seconds(numbers, a.Work, -1), true
		}
		if o = nearestForm(x.kinds[measuredKey{name, "", ranks}], form); o == nil {
			return 0, false
		}
		return o.seconds(nil, a.Work, -1), true
	}
	// Nothing was measured: operations and bytes over the machine's rates, on all threads or shared.
	c := m.op(name, a.Work, a.V, 64)
	if said.alone, is = of(1); !is {
		said.alone = c.Compute + c.Move
	}
	if said.one, is = of(x.threads); !is {
		said.one = (c.Compute + c.Move) * float64(x.threads)
	}
	if said.many, is = of(x.many); !is {
		said.many = said.one
	}
	x.said[key] = said
	return said
}

// nearestForm is one with the same beginning, the dtype, or else any.
func nearestForm(all []*OpTimes, form string) (best *OpTimes) {
	most := -1
	for _, o := range all {
		same := 0
		for same < len(form) && same < len(o.Form) && form[same] == o.Form[same] {
			same++
		}
		if same > most {
			best, most = o, same
		}
	}
	return best
}

// collective is what one takes among n goroutines: its seconds while nobody else computes,
// and the thread-seconds of each of them while others do.
func (x *measured) collective(op, dtype string, n int, bytes float64) (wait, carry float64) {
	wait, _ = x.of(op, dtype, n, bytes, false)
	many, at := x.of(op, dtype, n, bytes, true)
	return wait, many * float64(x.threads) / float64(at*n)
}

// of finds a collective among the measured ones: crowded, of several groups at once.
func (x *measured) of(op, dtype string, n int, bytes float64, crowded bool) (seconds float64, groups int) {
	var best *CollectiveTimes
	badness := math.Inf(1)
	for i := range x.all {
		c := &x.all[i]
		if c.Processes || c.Op != op || (c.Groups > 1) != crowded {
			continue
		}
		bad := math.Abs(math.Log2(float64(c.Ranks) / float64(n)))
		if c.DType != dtype {
			bad += 0.1
		}
		if bad < badness {
			best, badness = c, bad
		}
	}
	if best == nil {
		return 0, 1
	}
	more := float64(n) / float64(best.Ranks) // bytes moved and ranks woken grow with the group
	return between(best.Times, bytes) * more, best.Groups
}

// between is the line through measured (size, seconds), each a logarithm; beyond the last one
// seconds grow with the size.
func between(times [][]float64, size float64) float64 {
	i, _ := slices.BinarySearchFunc(times, size, func(row []float64, x float64) int { return cmp.Compare(row[0], x) })
	switch {
	case i == 0:
		return times[0][1]
	case i == len(times):
		last := times[i-1]
		return last[1] * size / max(1, last[0])
	}
	a, b := times[i-1], times[i]
	f := math.Log(max(1, size)/max(1, a[0])) / math.Log(max(1, b[0])/max(1, a[0]))
	return math.Exp(math.Log(a[1]) + f*(math.Log(b[1])-math.Log(a[1])))
}

// LeaveOneOut is how far the seconds of measured ops are off, said by the others of their
// form: weighted by seconds, and the worst form.
func (m *Machine) LeaveOneOut() (rows int, mean, worst float64, err error) {
	off, all := 0.0, 0.0
	for i := range m.Ops {
		o := &m.Ops[i]
		if len(o.Times) < 3 {
			continue
		}
		o.rates()
		mine, sum := 0.0, 0.0
		for j, row := range o.Times {
			n := len(row)
			said := o.seconds(row[:n-3], device.Work{FLOPs: row[n-3], Bytes: row[n-2]}, j)
			mine, sum, rows = mine+math.Abs(said-row[n-1]), sum+row[n-1], rows+1
		}
		off, all, worst = off+mine, all+sum, max(worst, mine/sum)
	}
	if rows == 0 {
		return 0, 0, 0, errors.New("no op was measured at three sizes")
	}
	return rows, off / all, worst, nil
}

// Need is what a rank takes of the memory of its device, or of the host that ranks share, where
// its memory checkpoints are too.
func (m *Machine) Need(r Rank) int64 {
	if m.Threads == 0 {
		return r.Peak + r.Scratch
	}
	return r.Peak + r.Scratch + r.Copies
}

// Has reports whether the machine has the memory that ranks hold: each on its device, or all
// together where they share a host.
func (m *Machine) Has(ranks []Rank) bool {
	sum := int64(0)
	for _, r := range ranks {
		if m.Threads == 0 {
			sum = 0
		}
		if sum += m.Need(r); sum > int64(m.Memory) {
			return false
		}
	}
	return true
}
