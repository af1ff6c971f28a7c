package schedule

import (
	"fmt"
	"sync"

	"monotron/fault"
)

// Times are the seconds that each chunk of each stage takes for one micro-batch,
// [stage][chunk], and those of one value on its way between two stages.
type Times struct {
	Forward, Backward [][]float64
	Transfer          float64
}

// Span is a forward or backward on the clock, in seconds from the step's begin.
type Span struct {
	Kind         Kind
	Chunk, Micro int
	From, To     float64
}

// Timeline is a schedule run on a clock.
type Timeline struct {
	Config Config
	Spans  [][]Span // of each stage, in order
	End    float64  // seconds of the step
	Live   []int    // most (chunk, micro-batch) alive, a stage
}

// Simulate runs the schedule with seconds in place of tensors, over links on
// which a transfer begins when both ends have come to it.
func Simulate(c Config, t Times) (*Timeline, error) {
	lists, proof, err := c.All()
	if err != nil {
		return nil, err
	}
	c = c.filled()
	if err := t.check(c); err != nil {
		return nil, err
	}
	s := &simulation{times: t, meetings: meetings(lists)}
	stages, failed := make([]*clock, c.Stages), make([]error, c.Stages)
	var running sync.WaitGroup
	for stage := range stages {
		stages[stage] = &clock{simulation: s, stage: stage}
		running.Go(func() { failed[stage] = Run(lists[stage], stages[stage], stages[stage]) })
	}
	running.Wait()
	line := &Timeline{Config: c, Live: proof.Live}
	for stage, clock := range stages {
		if failed[stage] != nil {
			return nil, failed[stage]
		}
		line.Spans = append(line.Spans, clock.spans)
		line.End = max(line.End, clock.now)
	}
	return line, nil
}

func (t Times) check(c Config) error {
	for _, side := range [][][]float64{t.Forward, t.Backward} {
		if len(side) != c.Stages {
			return fault.Errorf(fault.Usage, "times for %d of %d stages", len(side), c.Stages)
		}
		for stage, chunks := range side {
			if len(chunks) != c.Chunks {
				return fault.Errorf(fault.Usage, "times for %d of %d chunks on stage %d", len(chunks), c.Chunks, stage)
			}
			for _, seconds := range chunks {
				if !(seconds >= 0 && seconds < 1e9) {
					return fault.Errorf(fault.Usage, "a chunk of stage %d takes %g seconds; times are from 0 to 1e9", stage, seconds)
				}
			}
		}
	}
	if !(t.Transfer >= 0 && t.Transfer < 1e9) {
		return fault.Errorf(fault.Usage, "a transfer takes %g seconds; times are from 0 to 1e9", t.Transfer)
	}
	return nil
}

// Even are the times of a model cut into equal chunks: forward and backward of
// one micro-batch through a whole stage.
func Even(c Config, forward, backward, transfer float64) Times {
	c = c.filled()
	t := Times{Transfer: transfer}
	for range c.Stages {
		f, b := make([]float64, c.Chunks), make([]float64, c.Chunks)
		for i := range f {
			f[i], b[i] = forward/float64(c.Chunks), backward/float64(c.Chunks)
		}
		t.Forward, t.Backward = append(t.Forward, f), append(t.Backward, b)
	}
	return t
}

// simulation is what the stages share.
type simulation struct {
	times    Times
	meetings map[[2]int]meeting
}

// meeting is a directed pair of stages: when each end came to its transfers, in
// order. No end waits to say so.
type meeting struct{ sender, receiver chan float64 }

func meetings(lists [][]Action) map[[2]int]meeting {
	counts := map[[2]int]int{}
	for stage, acts := range lists {
		for _, a := range acts {
			for _, t := range a.Transfers {
				if t.Send {
					counts[[2]int{stage, t.Peer}]++
				}
			}
		}
	}
	all := map[[2]int]meeting{}
	for pair, n := range counts {
		all[pair] = meeting{make(chan float64, n), make(chan float64, n)}
	}
	return all
}

// clock is a stage as worker and link: a value is the second at which it is there.
type clock struct {
	*simulation
	stage int
	now   float64
	spans []Span
}

func (c *clock) Forward(micro, chunk int, in float64) (float64, error) {
	return c.run(Forward, micro, chunk, in, c.times.Forward[c.stage][chunk])
}

func (c *clock) Backward(micro, chunk int, dout float64) (float64, error) {
	return c.run(Backward, micro, chunk, dout, c.times.Backward[c.stage][chunk])
}

func (c *clock) run(kind Kind, micro, chunk int, ready, seconds float64) (float64, error) {
	from := max(c.now, ready)
	c.now = from + seconds
	c.spans = append(c.spans, Span{kind, chunk, micro, from, c.now})
	return c.now, nil
}

func (c *clock) Exchange(transfers []Transfer, _ []float64) (func() ([]float64, error), error) {
	begun := c.now
	for _, t := range transfers {
		if t.Send {
			c.meetings[[2]int{c.stage, t.Peer}].sender <- begun
		} else {
			c.meetings[[2]int{t.Peer, c.stage}].receiver <- begun
		}
	}
	return func() ([]float64, error) {
		there := make([]float64, len(transfers))
		for i, t := range transfers {
			var other float64
			if t.Send {
				other = <-c.meetings[[2]int{c.stage, t.Peer}].receiver
			} else {
				other = <-c.meetings[[2]int{t.Peer, c.stage}].sender
			}
			there[i] = max(begun, other) + c.times.Transfer
			c.now = max(c.now, there[i])
		}
		return there, nil
	}, nil
}

// Busy is the seconds a stage computes.
func (t *Timeline) Busy(stage int) (seconds float64) {
	for _, s := range t.Spans[stage] {
		seconds += s.To - s.From
	}
	return seconds
}

// Idle is the seconds a stage waits between the step's begin and end.
func (t *Timeline) Idle(stage int) float64 { return max(0, t.End-t.Busy(stage)) }

// Bubble is the time all stages wait over the time they compute; with equal
// stages Config.BubbleFraction.
func (t *Timeline) Bubble() float64 {
	busy, idle := 0.0, 0.0
	for stage := range t.Spans {
		busy += t.Busy(stage)
		idle += t.Idle(stage)
	}
	if busy == 0 {
		return 0
	}
	return idle / busy
}

func (s Span) String() string {
	return fmt.Sprintf("%v %.6g-%.6g", Action{Kind: s.Kind, Chunk: s.Chunk, Micro: s.Micro}, s.From, s.To)
}
