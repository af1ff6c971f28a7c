package training

import (
	"errors"
	"fmt"
	"os"
	"time"

	"monotron/csrc/device"
	"monotron/fault"
	"monotron/megatron/report"
	"monotron/mpu"
)

// logger sends what happens to Megatron's lines, JSONL, TensorBoard, the trace
// and the progress bar.
type logger struct {
	streams  Streams
	config   *Config
	iters    int64
	window   report.Window
	timers   *report.Timers
	bar      *report.Progress
	jsonl    *report.JSONL
	events   *report.Events
	trace    *report.Trace
	metrics  *report.Metrics // nil: none
	lines    int             // log lines so far
	memories int             // memory lines so far
}

// stepLog is one iteration as the loop saw it.
type stepLog struct {
	started time.Time
	data    time.Duration // waiting for the batch
	batch   BatchSize
	result  StepResult
}

func newLogger(r *Run, w Streams) (l *logger, err error) {
	c := &r.Config.Log
	l = &logger{streams: w, config: &r.Config, iters: r.iters, timers: report.NewTimers(c.TimingLevel), bar: &report.Progress{}}
	if c.JSONL != "" {
		if l.jsonl, err = report.OpenJSONL(c.JSONL); err != nil {
			return nil, err
		}
	}
	if c.TensorboardDir != "" {
		if l.events, err = report.NewEvents(c.TensorboardDir, c.TensorboardQueue); err != nil {
			return nil, err
		}
	}
	if st, err := os.Stat(c.Profile); err == nil && st.IsDir() {
		return nil, fault.Errorf(fault.IO, "--profile %s is a folder; name a file", c.Profile)
	}
	if c.Profile != "" {
		if l.trace, err = report.NewTrace(c.Profile, 1); err != nil {
			return nil, err
		}
		l.timers.Trace = l.trace
	}
	if c.MetricsAddr != "" {
		if l.metrics, err = report.ServeMetrics(c.MetricsAddr); err != nil {
			return nil, err
		}
	}
	if stderr, ok := w.Notes.(*os.File); ok {
		l.bar = report.NewProgress(stderr, r.iters, "training")
	}
	return l, nil
}

func (l *logger) close() error {
	l.bar.Close()
	var problems []error
	if l.jsonl != nil {
		problems = append(problems, l.jsonl.Close())
	}
	if l.events != nil {
		problems = append(problems, l.events.Close())
	}
	if l.metrics != nil {
		problems = append(problems, l.metrics.Close())
	}
	return errors.Join(append(problems, l.trace.Close())...)
}

// line prints to stdout, out of the bar's way.
func (l *logger) line(text string) error {
	var err error
	l.bar.Above(func() { _, err = fmt.Fprintln(l.streams.Out, text) })
	return fault.With(fault.IO, err)
}

// note tells a person something.
func (l *logger) note(format string, args ...any) {
	l.bar.Above(func() { fmt.Fprintf(l.streams.Notes, format+"\n", args...) })
}

func (l *logger) parameters(params []*mpu.Param) error {
	n := int64(0)
	for _, p := range params {
		n += p.Len()
	}
	return l.line(report.ParameterCount(0, 0, n))
}

// begin opens an iteration: the trace records those that --profile asks for.
func (l *logger) begin(iteration int64) {
	c := &l.config.Log
	l.trace.Record(iteration >= int64(c.ProfileStart) && (c.ProfileEnd == 0 || iteration < int64(c.ProfileEnd)))
}

// step takes one finished iteration and prints when a line is due.
func (l *logger) step(r *Run, s stepLog) error {
	took := time.Since(s.started)
	l.window.Add([]report.Value{{Name: "lm loss", Value: s.result.Loss}}, s.result.Update.Skipped, took)
	l.bar.Add(1)
	it := r.Engine.Iteration
	var paramsNorm *float64
	if l.config.Log.ParamsNorm {
		norm := r.Engine.Optimizer.ParamsNorm()
		paramsNorm = &norm
	}
	if err := l.record(r, s, took, paramsNorm); err != nil {
		return err
	}
	l.lines++
	if l.lines > 1 && !due(it, l.config.Log.Interval) {
		return nil
	}
	return l.print(r, s, paramsNorm)
}

// print writes the log line, and what goes with it.
func (l *logger) print(r *Run, s stepLog, paramsNorm *float64) error {
	iterations := l.window.Advanced + l.window.Skipped
	e := report.Iteration{
		Iteration: int(r.Engine.Iteration), TrainIters: int(r.iters), ConsumedSamples: r.at.ConsumedTrain, SkippedSamples: r.at.SkippedTrain,
		LearningRate: r.Engine.Scheduler.LR(), GlobalBatchSize: s.batch.Global, LossScale: r.Engine.Scaler.Scale(), ParamsNorm: paramsNorm,
		GradNorm: gradNorm(s), NumZeros: l.zeros(s),
	}
	l.window.Fill(&e)
	if l.config.Log.Throughput {
		t := l.config.Model.FLOPs(s.batch.Running, l.config.SeqLength) / e.Elapsed.Seconds() / 1e12
		e.Throughput = &t
	}
	if err := l.line(e.Line(time.Now())); err != nil {
		return err
	}
	if l.config.Log.Extras {
		if err := l.line(l.extras(r, s).Line()); err != nil {
			return err
		}
	}
	if err := l.memory(r); err != nil {
		return err
	}
	return l.timing(r.Engine.Iteration, iterations)
}

func gradNorm(s stepLog) *float64 {
	if s.result.Update.Skipped {
		return nil
	}
	return &s.result.Update.GradNorm
}

func (l *logger) zeros(s stepLog) *float64 {
	if !l.config.Log.NumZeros || s.result.Update.Skipped {
		return nil
	}
	n := float64(s.result.Update.Zeros)
	return &n
}

func (l *logger) extras(r *Run, s stepLog) *report.Extras {
	took := time.Since(s.started)
	return &report.Extras{Iteration: int(r.Engine.Iteration), Loss: s.result.Loss, Total: took, Forward: s.result.Forward, Backward: s.result.Backward,
		TokensPerSecond: float64(s.batch.Running*l.config.SeqLength) / took.Seconds()}
}

// memory prints the memory line after the first two steps, and at
// --log-memory-interval.
func (l *logger) memory(r *Run) error {
	if l.memories >= 2 && !due(r.Engine.Iteration, l.config.Log.MemoryInterval) {
		return nil
	}
	l.memories++
	return l.line(memoryOf(r.device).Line(0, int(r.Engine.Iteration)))
}

func memoryOf(d *device.Device) *report.Memory {
	u := d.Arena.Usage()
	return &report.Memory{Allocated: u.Allocated, MaxAllocated: u.Max, Reserved: u.Reserved, MaxReserved: u.Reserved, Allocations: u.Blocks}
}

// timing prints the timers of the level asked for.
func (l *logger) timing(iteration int64, iterations int) error {
	names := report.LoggedTimers(l.config.Log.TimingLevel)
	seconds := l.timers.Take(names)
	if l.events != nil && l.config.Log.TimersToTensorboard {
		for i, name := range names {
			if seconds[i] > 0 {
				l.events.Scalar(name+"-time", seconds[i]/float64(iterations), iteration)
			}
		}
	}
	text := report.TimerLines(l.config.Log.TimingOption, names, [][]float64{seconds}, iterations)
	if text == "" {
		return nil
	}
	return l.line(text)
}

// record writes the iteration to JSONL and TensorBoard.
func (l *logger) record(r *Run, s stepLog, took time.Duration, paramsNorm *float64) error {
	if err := l.tell(l.jsonStep(r, s, took, paramsNorm)); err != nil {
		return err
	}
	if l.events == nil || !due(r.Engine.Iteration, l.config.Log.TensorboardInterval) {
		return nil
	}
	c, seconds := &l.config.Log, took.Seconds()
	out := &report.Scalars{Iteration: int(r.Engine.Iteration), ConsumedSamples: r.at.ConsumedTrain, SkippedSamples: r.at.SkippedTrain,
		LearningRate: r.Engine.Scheduler.LR(), BatchSize: s.batch.Global, Losses: []report.Value{{Name: "lm loss", Value: s.result.Loss}},
		GradNorm: gradNorm(s), NumZeros: l.zeros(s), ParamsNorm: paramsNorm, IterationTime: &seconds}
	if c.Throughput {
		t := l.config.Model.FLOPs(s.batch.Running, l.config.SeqLength) / seconds / 1e12
		out.Throughput = &t
	}
	if c.LossScaleToTensorboard {
		scale := r.Engine.Scaler.Scale()
		out.LossScale = &scale
	}
	if c.WorldSizeToTensorboard {
		one := 1
		out.WorldSize = &one
	}
	if c.MemoryToTensorboard {
		out.Memory = memoryOf(r.device)
	}
	l.events.Training(out)
	return nil
}

func (l *logger) jsonStep(r *Run, s stepLog, took time.Duration, paramsNorm *float64) *report.Step {
	tokens, seconds := s.batch.Running*l.config.SeqLength, took.Seconds()
	return &report.Step{
		Time: time.Now(), Iteration: int(r.Engine.Iteration), ConsumedSamples: r.at.ConsumedTrain, ConsumedTokens: r.at.ConsumedTrain * int64(l.config.SeqLength),
		Loss: map[string]report.Number{"lm loss": report.Number(s.result.Loss)}, LearningRate: report.Number(s.result.LR),
		WeightDecay: report.Number(r.Engine.Scheduler.WeightDecay()), GlobalBatchSize: s.batch.Global, LossScale: report.Number(s.result.Scale),
		GradNorm: number(gradNorm(s)), ParamsNorm: number(paramsNorm), NumZeros: number(l.zeros(s)), Skipped: s.result.Update.Skipped,
		Seconds: report.Number(seconds), TokensPerSecond: report.Number(float64(tokens) / seconds),
		TFLOPs:      report.Number(l.config.Model.FLOPs(s.batch.Running, l.config.SeqLength) / seconds / 1e12),
		MemoryBytes: r.device.Arena.Usage().Max,
		PhaseSeconds: map[string]report.Number{"data": report.Number(s.data.Seconds()), "forward": report.Number(s.result.Forward.Seconds()),
			"backward": report.Number(s.result.Backward.Seconds()), "optimizer": report.Number(s.result.UpdateFor.Seconds())},
	}
}

func number(x *float64) *report.Number {
	if x == nil {
		return nil
	}
	n := report.Number(*x)
	return &n
}

// tell sends a step to the JSON lines and the metrics.
func (l *logger) tell(s *report.Step) error {
	if l.metrics != nil {
		l.metrics.Observe(s)
	}
	if l.jsonl == nil {
		return nil
	}
	return l.jsonl.Write(s)
}

// validation reports an evaluation.
func (l *logger) validation(r *Run, where, split string, loss float64) error {
	losses := []report.Value{{Name: "lm loss", Value: loss}}
	s := &report.Step{Time: time.Now(), Iteration: int(r.Engine.Iteration), ConsumedSamples: r.at.ConsumedTrain, Validation: split,
		Loss: map[string]report.Number{"lm loss": report.Number(loss)}}
	if err := l.tell(s); err != nil {
		return err
	}
	if l.events != nil && split == "validation" {
		l.events.Evaluation(losses, int(r.Engine.Iteration), r.at.ConsumedTrain, l.config.Log.ValidationPPLTensorboard)
	}
	return l.line(report.Validation(where, losses))
}
