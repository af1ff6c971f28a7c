package training

import (
	"cmp"
	"fmt"
	"time"

	"monotron/csrc/device"
	"monotron/megatron/report"
	"monotron/megatron/schedule"
	"monotron/mpu/comm/watch"
)

// steady is what a rank that is alone does the same way in every step, as graphs of the
// device: forward and backward of a micro-batch, whose numbers come into the same tensors
// each time, and the update. Nil: all is enqueued op by op.
type steady struct {
	engine *Engine
	micro  *device.Graph
	update *device.Graph // the optimizer's
	in     inputs
	shape  string // of the first micro-batch
	varied bool   // another has another
	news   []string
	told   bool // what became of the graphs
}

// Capture makes the steady parts of a step graphs, or says why that cannot be.
func (e *Engine) Capture() (why string) {
	c := &e.config
	switch {
	case e.rank.World().Size() > 1:
		return fmt.Sprintf("%d ranks: what travels between them is not captured", e.rank.World().Size())
	case c.Layout.Schedule == schedule.GPipeName:
		return "with --pipeline-schedule gpipe forward and backward of a micro-batch do not follow each other"
	case e.rank.Inject != nil:
		return "--inject looks at every layer"
	case c.Log.Profile != "":
		return "--profile traces forward and backward apart"
	case c.Log.TimingLevel >= report.LevelMicro:
		return "--timing-log-level 2 times forward and backward apart"
	}
	s := &steady{engine: e, micro: e.device.NewGraph(), update: e.device.NewGraph(), in: inputs{scope: e.device.Arena.Scope(device.Activations)}}
	if s.micro == nil {
		return fmt.Sprintf("the %s device has none", e.device.Name)
	}
	e.steady, e.Optimizer.Graph = s, s.update
	return ""
}

// suits tells whether the micro-batches have the shape of the first one ever.
func (s *steady) suits(micros []*Micro) bool {
	if s == nil {
		return false
	}
	for _, m := range micros {
		shape := fmt.Sprint(len(m.Tokens), len(m.Tokens[0]), m.DocStart != nil)
		if s.shape == "" {
			s.shape = shape
		}
		if shape != s.shape {
			if !s.varied {
				s.news = append(s.news, fmt.Sprintf("no CUDA graph for micro-batches of %d samples of %d: the first had another shape", len(m.Tokens), len(m.Tokens[0])))
			}
			s.varied = true
			return false
		}
	}
	return true
}

// run trains on micro-batches one after the other. Forward is told the time of both.
func (s *steady) run(micros []*Micro, r *StepResult) error {
	e := s.engine
	for _, m := range micros {
		start := time.Now()
		e.rank.Enter(watch.Forward, e.Iteration+1)
		pass, mask := e.load(s.in.rewind(), m, e.parts[0], e.tokenWeight(m, len(micros)), true)
		err := s.micro.Run(func() error {
			out, err := e.Stages[0].Forward(pass, device.Tensor{})
			if err != nil {
				return err
			}
			e.device.WeightedSum(e.sums, out.Loss, mask)
			return e.Stages[0].Backward(pass, out, device.Tensor{}, device.Tensor{})
		})
		if err != nil {
			return err
		}
		r.Forward += time.Since(start)
	}
	return nil
}

// settle notes what became of the graphs, once that is known.
func (s *steady) settle() {
	micro, update := s.micro, s.update
	switch {
	case s.told:
		return
	case micro.Err != nil || update.Err != nil:
		s.news = append(s.news, fmt.Sprintf("no CUDA graphs: %v", cmp.Or(micro.Err, update.Err)))
	case micro.Runs > 0 && update.Runs > 0:
		s.news = append(s.news, fmt.Sprintf("CUDA graphs: a micro-batch is one launch of %d kernels, the update one of %d", micro.Nodes, update.Nodes))
	default:
		return
	}
	s.told = true
}

// GraphNews are lines for the log, each told once: what became of the graphs.
func (e *Engine) GraphNews() (lines []string) {
	if s := e.steady; s != nil {
		s.settle()
		lines, s.news = s.news, nil
	}
	return lines
}
