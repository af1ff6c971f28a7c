package schedule

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"
)

// executed runs the lists by the executor that trains, a clock as worker and link: what a
// Program must say.
func executed(t *testing.T, c Config, times Times) (spans [][]Span, end float64) {
	lists, _, err := c.All()
	if err != nil {
		t.Fatal(err)
	}
	e := &execution{times: times, meetings: meetings(lists)}
	stages := make([]*stageClock, len(lists))
	var running sync.WaitGroup
	for stage := range stages {
		stages[stage] = &stageClock{execution: e, stage: stage}
		running.Go(func() {
			if err := Run(lists[stage], stages[stage], stages[stage]); err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
	for _, s := range stages {
		spans, end = append(spans, s.spans), max(end, s.now)
	}
	return spans, end
}

type execution struct {
	times    Times
	meetings map[[2]int]meeting
}

// meeting is a directed pair of stages: when each end came to its transfers, in order. No
// end waits to say so.
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

// stageClock is a stage as worker and link: a value is the second at which it is there.
type stageClock struct {
	*execution
	stage int
	now   float64
	spans []Span
}

func (c *stageClock) Forward(micro, chunk int, in float64) (float64, error) {
	return c.run(Forward, micro, chunk, in, c.times.Forward[c.stage][chunk])
}

func (c *stageClock) Backward(micro, chunk int, dout float64) (float64, error) {
	return c.run(Backward, micro, chunk, dout, c.times.Backward[c.stage][chunk])
}

func (c *stageClock) run(kind Kind, micro, chunk int, ready, seconds float64) (float64, error) {
	from := max(c.now, ready)
	c.now = from + seconds
	c.spans = append(c.spans, Span{kind, chunk, micro, from, c.now})
	return c.now, nil
}

func (c *stageClock) Exchange(transfers []Transfer, _ []float64) (func() ([]float64, error), error) {
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

// programs are schedules of every kind with uneven times.
func programs(t *testing.T, try func(c Config, p *Program, times Times)) {
	random := rand.New(rand.NewPCG(7, 0))
	for _, c := range []Config{{Stages: 1, Micros: 3}, {Stages: 2, Micros: 5}, {Stages: 4, Micros: 9}, {Stages: 5, Micros: 2}, {Name: GPipeName, Stages: 3, Micros: 4}, {Stages: 3, Micros: 7, ForwardOnly: true},
		{Stages: 2, Chunks: 2, Micros: 6}, {Stages: 4, Chunks: 3, Micros: 8}, {Stages: 4, Chunks: 2, Micros: 12, NoOverlap: true}, {Stages: 3, Chunks: 2, Micros: 7, Group: 4, Name: GPipeName}} {
		for range 8 {
			times := Even(c, 1, 2, random.Float64()*random.Float64())
			for stage := range times.Forward {
				for chunk := range times.Forward[stage] {
					times.Forward[stage][chunk] *= 0.3 + random.Float64()
					times.Backward[stage][chunk] *= 0.3 + random.Float64()
				}
			}
			p, err := Compile(c)
			if err != nil {
				t.Fatal(err)
			}
			try(c, p, times)
		}
	}
}

// Claim: a compiled program takes, forward by forward, what the executor that trains takes
// with a clock as its worker.
func TestProgramIsTheExecutor(t *testing.T) {
	programs(t, func(c Config, p *Program, times Times) {
		want, end := executed(t, c, times)
		line, err := p.Run(times)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(line.End-end) > 1e-12 || p.Seconds(times) != line.End {
			t.Fatalf("%+v: ends at %g and %g, the executor at %g", c, line.End, p.Seconds(times), end)
		}
		for stage := range want {
			for i, span := range want[stage] {
				got := line.Spans[stage][i]
				if got.Kind != span.Kind || got.Chunk != span.Chunk || got.Micro != span.Micro || math.Abs(got.From-span.From) > 1e-12 || math.Abs(got.To-span.To) > 1e-12 {
					t.Fatalf("%+v, stage %d: %v, want %v", c, stage, got, span)
				}
			}
		}
	})
}

// Claim: stages that do not slow each other down take on a shared clock what they take on
// their own; where all share one thread the step is the sum of the work, whatever the schedule.
func TestShare(t *testing.T) {
	programs(t, func(c Config, p *Program, times Times) {
		each := func(stage int, kind Kind, chunk, _ int) float64 {
			if kind == Forward {
				return times.Forward[stage][chunk]
			}
			return times.Backward[stage][chunk]
		}
		line, free := p.Share(each, times.Transfer), p.Seconds(times)
		if math.Abs(line.End-free) > 1e-6 {
			t.Fatalf("%+v: %g on a shared clock, %g without", c, line.End, free)
		}
		one := p.Share(func(stage int, kind Kind, chunk, active int) float64 {
			return each(stage, kind, chunk, active) * float64(active)
		}, 0)
		sum := 0.0
		for stage := range times.Forward {
			for chunk := range times.Forward[stage] {
				sum += float64(c.Micros) * times.Forward[stage][chunk]
				if !c.ForwardOnly {
					sum += float64(c.Micros) * times.Backward[stage][chunk]
				}
			}
		}
		if math.Abs(one.End/sum-1) > 1e-6 {
			t.Fatalf("%+v: %g on one thread, the work is %g", c, one.End, sum)
		}
	})
}

// Claim: the step of many micro-batches, said by few of them, is that of all, to rounding but
// where a pipeline takes long to come to its steady part: uneven stages, transfers that cost,
// groups that do not come out even.
func TestFewMicroBatchesTellAll(t *testing.T) {
	random, book, short, off := rand.New(rand.NewPCG(9, 0)), &Programs{}, 0, 0
	for _, c := range []Config{{Stages: 1, Micros: 90}, {Stages: 2, Micros: 70}, {Stages: 4, Micros: 101}, {Stages: 6, Micros: 120}, {Stages: 4, Chunks: 2, Micros: 96}, {Stages: 3, Chunks: 4, Micros: 120},
		{Stages: 4, Chunks: 2, Micros: 96, NoOverlap: true}, {Name: GPipeName, Stages: 3, Micros: 40}} {
		p, err := Compile(c)
		if err != nil {
			t.Fatal(err)
		}
		for try := range 40 {
			times := Even(c, 1, 2, 0.2*random.Float64())
			for stage := range times.Forward {
				for chunk := range times.Forward[stage] {
					uneven := 1.0
					if try%2 == 0 {
						uneven = 0.5 + random.Float64()
					}
					times.Forward[stage][chunk] *= uneven
					times.Backward[stage][chunk] *= uneven
				}
			}
			want := p.Seconds(times)
			got, err := book.About(c, times)
			if err != nil || math.Abs(got/want-1) > 5e-3 {
				t.Errorf("%+v: %g by few, %g by all, %v", c, got, want, err)
			}
			if math.Abs(got/want-1) > 1e-7 {
				off++
			}
			if got != want {
				short++
			}
		}
	}
	if short == 0 || off > 8 {
		t.Errorf("%d of 320 were said by few, %d of them not to rounding", short, off)
	}
}
