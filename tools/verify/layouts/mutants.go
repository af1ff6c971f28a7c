package layouts

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"

	"monotron/csrc/device"
	"monotron/megatron/config"
	"monotron/megatron/engine"
	"monotron/mpu/comm"
	"monotron/mpu/ranks"
	"monotron/mpu/topology"
)

// Mutant is one thing broken on purpose.
type Mutant struct {
	Name    string
	Layout  string
	Caught  bool
	By      string // what showed it
	variant Variant
	setup   func() Setup
}

// Faults of a collective.
const (
	drop   = "dropped"
	double = "doubled"
	scale  = "mis-scaled"
	inline = "added in rank order" // instead of as a tree
)

// site is a line of the program that calls a collective of a kind of group.
type site struct {
	group  string
	op     comm.Op
	reduce comm.ReduceOp
	caller string
}

func (s site) String() string {
	op := comm.Call{Op: s.op, Reduce: s.reduce, Root: -1}
	return fmt.Sprintf("%s %s in %s", s.group, op.What(), s.caller)
}

// collectives counts the calls of a training by site, and breaks one call, or all,
// of one of them on every rank.
type collectives struct {
	mu    sync.Mutex
	calls map[calls]int
	names map[stack]string // of callers
	fault string           // "": none
	at    site
	call  int // number of the call that is broken; every: each
}

// calls are those of a rank at a site.
type calls struct {
	rank int
	site site
}

const every = -1

func newCollectives(fault string, at site, call int) *collectives {
	return &collectives{calls: map[calls]int{}, names: map[stack]string{}, fault: fault, at: at, call: call}
}

// most is the largest number of calls a rank made, by site.
func (c *collectives) most() map[site]int {
	most := map[site]int{}
	for at, n := range c.calls {
		most[at.site] = max(most[at.site], n)
	}
	return most
}

// wrap puts a watch on every group of a rank.
func (c *collectives) wrap(r *ranks.Rank) {
	for kind, g := range r.Groups {
		if g.Size() > 1 {
			r.Groups[kind] = g.Over(func(e comm.Engine) comm.Engine {
				return &watched{engine: e, kind: string(kind), rank: r.Number, member: g.Rank(), device: r.Device, watch: c}
			})
		}
	}
}

// broken records a call and returns which fault it gets.
func (c *collectives) broken(rank int, kind string, op *comm.Collective) string {
	var s stack
	runtime.Callers(2, s[:])
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.names[s] == "" {
		c.names[s] = s.caller()
	}
	at := calls{rank, site{kind, op.Op, op.Reduce, c.names[s]}}
	n := c.calls[at]
	c.calls[at]++
	if at.site == c.at && (c.call == every || c.call == n) {
		return c.fault
	}
	return ""
}

// stack is where a program is: its calls, innermost first.
type stack [32]uintptr

// caller names who asked for a collective: the nearest three functions outside this
// package and the group.
func (s *stack) caller() string {
	frames := runtime.CallersFrames(s[:])
	var path []string
	for more := true; more && len(path) < 3; {
		var f runtime.Frame
		f, more = frames.Next()
		if len(path) == 0 && (strings.Contains(f.Function, "monotron/tools/verify/") || strings.HasPrefix(f.Function, "monotron/mpu/comm.")) {
			continue
		}
		if !strings.HasPrefix(f.Function, "monotron/") {
			break
		}
		name := f.Function[strings.LastIndexByte(f.Function, '/')+1:]
		path = append(path, strings.NewReplacer("(*", "", ")", "").Replace(name))
	}
	return strings.Join(path, " < ")
}

// watched is an engine with at most one of its collectives broken.
type watched struct {
	engine comm.Engine
	kind   string
	rank   int // of the world
	member int // in the group
	device *device.Device
	watch  *collectives
}

// late does something when a collective is over.
type late struct {
	comm.Work
	after func() error
}

func (l late) Wait() error {
	if err := l.Work.Wait(); err != nil {
		return err
	}
	return l.after()
}

// Start carries a collective out as the fault says. An exchange without a receive
// changes no number here, and a barrier none at all; gathers and scatters of results
// and saved values, are left alone.
func (w *watched) Start(c *comm.Collective) comm.Work {
	outs := received(c)
	if len(outs) == 0 {
		return w.engine.Start(c)
	}
	switch w.watch.broken(w.rank, w.kind, c) {
	case drop:
		w.keep(c)
		return comm.Finished(nil)
	case double:
		return late{w.engine.Start(c), func() error { return w.engine.Start(c).Wait() }}
	case inline:
		straight := *c
		straight.Reduce = comm.Sum
		return w.engine.Start(&straight)
	case scale:
		return late{w.engine.Start(c), func() error {
			for _, t := range outs {
				w.scale(t)
			}
			return nil
		}}
	}
	return w.engine.Start(c)
}

// received is what a fault may spoil: of an exchange the first message, else all that comes.
func received(c *comm.Collective) (outs []device.Tensor) {
	switch c.Op {
	case comm.AllReduce, comm.Broadcast, comm.AllGather, comm.ReduceScatter:
		return []device.Tensor{c.Out}
	case comm.Exchange, comm.AllToAll:
		for _, t := range c.Transfers {
			if !t.Send && (c.Op == comm.AllToAll || len(outs) == 0) {
				outs = append(outs, t.T)
			}
		}
	}
	return outs
}

// keep stands for a collective that is dropped: each rank has its own part.
func (w *watched) keep(c *comm.Collective) {
	if c.Op == comm.AllToAll {
		w.keepParts(c.Transfers)
		return
	}
	own, from := c.Out.Reshape(c.Out.Len()), c.In.Reshape(c.In.Len())
	switch n := int64(w.member); c.Op {
	case comm.AllGather:
		own = own.Slice(0, n*c.In.Len(), c.In.Len())
	case comm.ReduceScatter:
		from = from.Slice(0, n*c.Out.Len(), c.Out.Len())
	}
	if own.Data != from.Data {
		w.device.Copy(own, from)
	}
}

// keepParts stands for an all-to-all: nothing comes from the others.
func (w *watched) keepParts(transfers []comm.Transfer) {
	for i, t := range transfers {
		switch {
		case t.Send || t.T.Len() == 0:
		case t.Peer == w.member: // comes after what this rank sends to itself
			w.device.Copy(t.T, transfers[i-1].T)
		default:
			w.device.Fill(t.T, 0)
		}
	}
}

// scale multiplies by 1.5, through the host.
func (w *watched) scale(t device.Tensor) {
	raw := make([]byte, t.Bytes())
	w.device.Read(raw, t)
	values := device.ToFloat64(t.DType, raw)
	for i := range values {
		values[i] *= 1.5
	}
	w.device.Write(t, device.FromFloat64(t.DType, values))
}

// Mutants lists what can be broken in the training of m under each variant: every
// collective that the training makes, each way that changes numbers; the dropout
// masks of one rank; the padded columns of the vocabulary.
func Mutants(m Model, variants []Variant, steps int, open func() (*device.Device, error)) ([]*Mutant, error) {
	var all []*Mutant
	known := map[string]bool{}
	for _, v := range variants {
		watch := newCollectives("", site{}, every)
		if _, err := Train(m, v, steps, open, Setup{rank: watch.wrap}); err != nil {
			return nil, fmt.Errorf("%v: %w", v, err)
		}
		most := watch.most()
		for _, s := range sorted(most) {
			for _, f := range faultsOf(s) {
				if m.Config.Leaves > 0 && idle(f, s, m, v) {
					continue
				}
				for _, call := range m.broken(most[s]) {
					if name := f + ": " + s.String() + call.name; !known[name] {
						known[name] = true
						all = append(all, &Mutant{Name: name, Layout: v.String(), variant: v,
							setup: func() Setup { return Setup{rank: newCollectives(f, s, call.number).wrap} }})
					}
				}
			}
		}
		all = append(all, others(m, v)...)
	}
	return all, nil
}

// which calls of a site are broken.
type which struct {
	number int
	name   string
}

// broken picks of n calls in a training, from the observation before it to the evaluation
// after it: all, and a few alone; of a model with leaves all, for its first step is made twice,
// and what is broken in a single call of the first time is not in the second.
func (m Model) broken(n int) []which {
	list := []which{{every, ""}}
	if m.Config.Leaves > 0 {
		return list
	}
	const alone = 4
	for i := range min(n, alone) {
		if n > 1 {
			call := i * (n - 1) / (min(n, alone) - 1)
			list = append(list, which{call, fmt.Sprintf(", call %d of %d", call+1, n)})
		}
	}
	return list
}

// idle reports whether a fault changes no bit of a model with leaves: two ranks have one order; the
// squares that sumStats adds up are replaced by exact ones; and in settle all ranks mostly have the
// same bound, rounded to a power of two.
func idle(fault string, s site, m Model, v Variant) bool {
	ranks := v.Layout.TP
	if s.group == string(topology.QuerySharers) {
		ranks /= m.Config.Model.NumQueryGroups
	}
	return fault == inline && ranks <= 2 || strings.HasPrefix(s.caller, "optimizer.Optimizer.sumStats") || strings.HasPrefix(s.caller, "optimizer.Optimizer.settle")
}

// faultsOf leaves out what changes no number: a second gathering, broadcast or
// maximum gives what the first gave; an exchange that one end leaves out is a
// mismatch and no number.
func faultsOf(s site) []string {
	switch {
	case s.op == comm.Exchange:
		return []string{scale}
	case s.reduce == comm.Tree && s.op == comm.ReduceScatter:
		return []string{drop, scale, inline}
	case s.op == comm.AllGather, s.op == comm.Broadcast, s.op == comm.ReduceScatter, s.op == comm.AllToAll:
		return []string{drop, scale}
	case s.reduce == comm.Max:
		return []string{drop}
	case s.reduce == comm.Tree:
		return []string{drop, double, scale, inline}
	}
	return []string{drop, double, scale}
}

// others are the mutants that are not collectives.
func others(m Model, v Variant) []*Mutant {
	var all []*Mutant
	add := func(name string, s Setup) {
		all = append(all, &Mutant{Name: name, Layout: v.String(), variant: v, setup: func() Setup { return s }})
	}
	last := v.Layout.Sizes().World() - 1
	if m.Config.Model.HiddenDropout > 0 || m.Config.Model.AttentionDropout > 0 {
		add("dropout masks of the last rank offset by one sample", Setup{micro: func(micro *engine.Micro, r *ranks.Rank) {
			if r.Number == last {
				for i := range micro.Samples {
					micro.Samples[i]++
				}
			}
		}})
	}
	if n := m.Config.Leaves; n > 0 {
		for _, leaves := range []int{0, n / 2} { // 0: sums in the order of the layout
			add(fmt.Sprintf("%d leaves instead of %d", leaves, n), Setup{config: func(c *config.Run, _ *ranks.Rank) { c.Leaves = leaves }})
		}
		if all := m.Config.SequenceLeaves; all > 1 {
			half := all / 2
			add(fmt.Sprintf("%d leaves of a sample instead of %d", half, all), Setup{config: func(c *config.Run, _ *ranks.Rank) { c.SequenceLeaves = half }})
		}
	}
	if v.Layout.TP > 1 {
		add("padded columns of the vocabulary counted", Setup{config: func(c *config.Run, _ *ranks.Rank) {
			c.Model.PaddedVocabCounts = true
		}})
	}
	return all
}

func sorted(seen map[site]int) []site {
	var list []site
	for s := range seen {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b site) int { return strings.Compare(a.String(), b.String()) })
	return list
}

// Run trains the mutant and reports how it shows against want.
func (mu *Mutant) Run(m Model, steps int, open func() (*device.Device, error), want *Outcome, b Bounds) {
	got, err := Train(m, mu.variant, steps, open, mu.setup())
	if err != nil {
		mu.Caught, mu.By = true, firstLine(err)
		return
	}
	d := compare(got, want, b)
	if mu.Caught = d.Over; d.Over {
		mu.By = d.where(b)
	}
}

func firstLine(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n")
	return text
}
