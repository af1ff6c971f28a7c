package schedule

import (
	"fmt"

	"monotron/internal/exitcode"
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
	p, err := Compile(c)
	if err != nil {
		return nil, err
	}
	return p.Run(t)
}

func (t Times) check(c Config) error {
	for _, side := range [][][]float64{t.Forward, t.Backward} {
		if len(side) != c.Stages {
			return exitcode.Errorf(exitcode.Usage, "times are given for %d stages, but there are %d stages", len(side), c.Stages)
		}
		for stage, chunks := range side {
			if len(chunks) != c.Chunks {
				return exitcode.Errorf(exitcode.Usage, "times are given for %d chunks, but there are %d chunks on stage %d", len(chunks), c.Chunks, stage)
			}
			for _, seconds := range chunks {
				if !(seconds >= 0 && seconds < 1e9) {
					return exitcode.Errorf(exitcode.Usage, "the time of a chunk of stage %d is %g seconds; times must be from 0 to 1e9", stage, seconds)
				}
			}
		}
	}
	if !(t.Transfer >= 0 && t.Transfer < 1e9) {
		return exitcode.Errorf(exitcode.Usage, "the time of a transfer is %g seconds; times must be from 0 to 1e9", t.Transfer)
	}
	return nil
}

// Even are the times of a model cut into equal chunks: forward and backward of
// one micro-batch through a complete stage.
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
