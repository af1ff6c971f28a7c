package schedule

import (
	"math"
	"sync"
)

// Program is every stage's list ready for a clock, as often as one likes. Its tasks hold no pointers: a search
// keeps many programs, which the collector then need not read.
type Program struct {
	Config Config // with its defaults
	Live   []int  // most (chunk, micro-batch) alive, a stage
	steps  [][]task
	slots  []int32 // of the tasks' halves of messages; the other half has the same number but for its lowest bit
	halves int
}

// task is what a stage does on a clock: it runs a forward or backward, or it comes to one or
// more halves of messages, or waits until those have met their others.
type task struct {
	Kind         // Exchange: of the halves
	wait         bool
	chunk, micro int32
	from, to     int32 // in Program.slots
}

// Compile proves the lists and takes their exchanges apart into what begins and what is
// waited for, where Run would.
func Compile(c Config) (*Program, error) {
	lists, proof, err := c.All()
	if err != nil {
		return nil, err
	}
	w := newWires(lists)
	p := &Program{Config: c.filled(), Live: proof.Live, steps: make([][]task, len(lists)), slots: make([]int32, 0, 2*w.total()), halves: 2 * w.total()}
	for stage, acts := range lists {
		p.compile(stage, acts, w)
	}
	return p, nil
}

// compile is one stage's list.
func (p *Program) compile(stage int, acts []Action, w *wires) {
	n := len(acts)
	for i := range acts {
		if acts[i].Kind == Exchange {
			n++ // begun and waited for
		}
	}
	steps := make([]task, 0, n)
	var open [2]int // 1 + the exchange of activations, of gradients that has begun and is not waited for; 0: none
	var begun [2]task
	finish := func(side int) {
		if open[side] > 0 {
			begun[side].wait, open[side] = true, 0
			steps = append(steps, begun[side])
		}
	}
	for i := range acts {
		a := &acts[i]
		if a.Kind != Exchange {
			at := side(a.Kind == Backward)
			if open[at] > 0 && brings(acts[open[at]-1].Transfers, valueKey{a.Kind == Backward, a.Chunk, a.Micro}) {
				finish(at)
			}
			steps = append(steps, task{Kind: a.Kind, chunk: int32(a.Chunk), micro: int32(a.Micro)})
			continue
		}
		from := len(p.slots)
		for k := range a.Transfers {
			t := &a.Transfers[k]
			finish(side(t.Grad))
			n, end := w.number(stage, t)
			p.slots = append(p.slots, int32(2*n+end))
		}
		x := task{Kind: Exchange, from: int32(from), to: int32(len(p.slots))}
		steps = append(steps, x)
		at := side(a.Transfers[0].Grad)
		if open[at], begun[at] = i+1, x; !a.Overlap {
			finish(at)
		}
	}
	finish(0)
	finish(1)
	p.steps[stage] = steps
}

// clock is where the stages of a program are.
type clock struct {
	*Program
	transfer float64
	begun    []float64 // seconds at which a half was come to, by slot; negative: not yet
	next     []int     // step of each stage
	now      []float64 // of each stage
}

func (p *Program) clock(transfer float64) *clock {
	c := &clock{Program: p, transfer: transfer, begun: make([]float64, p.halves), next: make([]int, len(p.steps)), now: make([]float64, len(p.steps))}
	for i := range c.begun {
		c.begun[i] = -1
	}
	return c
}

// pass takes a stage to its next forward or backward, as far as others let it and not
// beyond `limit` seconds; nil: it stands before an exchange, or it is done.
func (c *clock) pass(stage int, limit float64) *task {
	steps, at, now := c.steps[stage], c.next[stage], c.now[stage]
	for ; at < len(steps) && now <= limit; at++ {
		s := &steps[at]
		if s.Kind != Exchange {
			c.next[stage], c.now[stage] = at, now
			return s
		}
		slots := c.slots[s.from:s.to]
		if !s.wait {
			for _, slot := range slots {
				c.begun[slot] = now
			}
			continue
		}
		met, there := c.meet(slots, now)
		if !there {
			break
		}
		now = met
	}
	c.next[stage], c.now[stage] = at, now
	return nil
}

// meet is when a stage has all that it waits for, if those at the other ends have come to it.
func (c *clock) meet(slots []int32, now float64) (at float64, there bool) {
	for _, slot := range slots {
		mine, other := c.begun[slot], c.begun[slot^1]
		if other < 0 {
			return now, false
		}
		now = max(now, max(mine, other)+c.transfer)
	}
	return now, true
}

// Run is the program with seconds in place of tensors, over links on which a transfer begins
// when both ends have come to it.
func (p *Program) Run(t Times) (*Timeline, error) {
	if err := t.check(p.Config); err != nil {
		return nil, err
	}
	line := &Timeline{Config: p.Config, Live: p.Live, Spans: make([][]Span, len(p.steps))}
	line.End = p.walk(t, func(stage int, s *task, from, to float64) {
		line.Spans[stage] = append(line.Spans[stage], Span{s.Kind, int(s.chunk), int(s.micro), from, to})
	})
	return line, nil
}

// Seconds is the end of Run's timeline, nothing of which is kept. The times are one for every
// chunk of every stage.
func (p *Program) Seconds(t Times) float64 { return p.walk(t, nil) }

// Programs are compiled configurations, each compiled once, for many clocks at the same time. Its zero value is empty.
type Programs struct {
	mu  sync.Mutex
	all map[Config]*compiled
}

type compiled struct {
	once    sync.Once
	program *Program
	err     error
}

// Of compiles a configuration, or has it.
func (b *Programs) Of(c Config) (*Program, error) {
	c = c.filled()
	b.mu.Lock()
	if b.all == nil {
		b.all = map[Config]*compiled{}
	}
	x := b.all[c]
	if x == nil {
		x = &compiled{}
		b.all[c] = x
	}
	b.mu.Unlock()
	x.once.Do(func() { x.program, x.err = Compile(c) })
	return x.program, x.err
}

// About is the end of c's timeline, near enough to tell layouts apart. Once a pipeline has come
// to its steady part every group of micro-batches takes the same, so a step of many is run with
// few, and the rest is added. Where the backwards of two groups in the middle do not come
// equally far apart, all are run.
func (b *Programs) About(c Config, t Times) (float64, error) {
	c = c.filled()
	few := (warmGroups + 2) * c.Group
	if c.Chunks > 1 {
		few += (c.Chunks + 1) * c.Group
	}
	few += c.Micros % c.Group
	if c.Name != GPipeName && !c.ForwardOnly && c.Micros > few+c.Group {
		short := c
		short.Micros = few
		p, err := b.Of(short)
		if err != nil {
			return 0, err
		}
		ends := make([]float64, few) // of the first stage's backwards
		end := p.walk(t, func(stage int, s *task, _, to float64) {
			if stage == 0 && s.Kind == Backward && s.chunk == 0 {
				ends[s.micro] = to
			}
		})
		last := few - c.Micros%c.Group - c.Group // the steady part is over about here
		period, before := ends[last-1]-ends[last-1-c.Group], ends[last-1-c.Group]-ends[last-1-2*c.Group]
		if math.Abs(period-before) <= 1e-9*end {
			return end + float64((c.Micros-few)/c.Group)*period, nil
		}
	}
	p, err := b.Of(c)
	if err != nil {
		return 0, err
	}
	return p.Seconds(t), nil
}

// warmGroups of micro-batches pass before the steady part is searched.
const warmGroups = 4

func (p *Program) walk(t Times, ran func(stage int, s *task, from, to float64)) (end float64) {
	c := p.clock(t.Transfer)
	for moved := true; moved; {
		moved = false
		for stage := range p.steps {
			before := c.next[stage]
			for s := c.pass(stage, 1e300); s != nil; s = c.pass(stage, 1e300) {
				from := c.now[stage]
				if s.Kind == Forward {
					c.now[stage] += t.Forward[stage][s.chunk]
				} else {
					c.now[stage] += t.Backward[stage][s.chunk]
				}
				if ran != nil {
					ran(stage, s, from, c.now[stage])
				}
				c.next[stage]++
			}
			moved = moved || c.next[stage] > before
		}
	}
	for _, now := range c.now {
		end = max(end, now)
	}
	return end
}

// Shared says how long a forward or backward of a stage takes while `active` stages compute,
// which have a machine's threads between them.
type Shared func(stage int, kind Kind, chunk, active int) float64

// Share runs the program with stages that slow each other down: what is left of a forward or
// backward continues at the speed of as many stages as compute then.
func (p *Program) Share(seconds Shared, transfer float64) *Timeline {
	c := p.clock(transfer)
	line := &Timeline{Config: p.Config, Live: p.Live, Spans: make([][]Span, len(p.steps))}
	running, left, from := make([]*task, len(p.steps)), make([]float64, len(p.steps)), make([]float64, len(p.steps))
	for now := 0.0; ; {
		for moved := true; moved; { // every stage gets as far as it can at this moment
			moved = false
			for stage := range p.steps {
				if running[stage] != nil || c.now[stage] > now {
					continue
				}
				before := c.next[stage]
				c.now[stage] = now
				if s := c.pass(stage, now); s != nil && c.now[stage] <= now {
					running[stage], left[stage], from[stage] = s, 1, now
				}
				moved = moved || c.next[stage] > before
			}
		}
		next, active := -1.0, 0
		for stage := range p.steps {
			if running[stage] != nil {
				active++
			}
		}
		sooner := func(at float64) {
			if next < 0 || at < next {
				next = at
			}
		}
		full := make([]float64, len(p.steps))
		for stage, s := range running {
			if s != nil {
				full[stage] = max(1e-12, seconds(stage, s.Kind, int(s.chunk), active))
				sooner(now + left[stage]*full[stage])
			} else if c.now[stage] > now { // a value is on its way
				sooner(c.now[stage])
			}
		}
		if next < 0 {
			line.End = now
			return line
		}
		for stage, s := range running {
			if s == nil {
				continue
			}
			if left[stage] -= (next - now) / full[stage]; left[stage] < 1e-9 {
				line.Spans[stage] = append(line.Spans[stage], Span{s.Kind, int(s.chunk), int(s.micro), from[stage], next})
				running[stage], c.now[stage] = nil, next
				c.next[stage]++
			}
		}
		now = next
	}
}
