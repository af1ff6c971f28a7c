package training

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"monotron/csrc/device"
	"monotron/megatron/report"
	"monotron/megatron/schedule"
	"monotron/mpu"
)

// logger sends what happens to Megatron's lines, JSONL, TensorBoard, the trace
// and the progress bar. Every rank has one and calls it alike: some numbers are
// made by all ranks together. The last rank, which knows the loss, prints; notes
// that all would give come from the first.
type logger struct {
	console  *console
	rank     *Rank
	config   *Config
	iters    int64
	window   report.Window
	timers   *report.Timers
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

func newLogger(r *Run) (l *logger, err error) {
	c := &r.Config.Log
	l = &logger{console: r.console, rank: r.rank, config: &r.Config, iters: r.iters, timers: report.NewTimers(c.TimingLevel), trace: r.trace}
	l.timers.Trace, l.timers.Rank = r.trace, r.rank.Number
	if !r.rank.Last() {
		return l, nil
	}
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
	if c.MetricsAddr != "" {
		if l.metrics, err = report.ServeMetrics(c.MetricsAddr); err != nil {
			return nil, err
		}
		l.console.note("metrics at http://%s/metrics", l.metrics.Addr())
	}
	return l, nil
}

func (l *logger) close() error {
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
	return errors.Join(problems...)
}

// line prints what the last rank has to say.
func (l *logger) line(text string) error {
	if !l.rank.Last() {
		return nil
	}
	return l.console.line(text)
}

// note tells a person something that is so on all ranks.
func (l *logger) note(format string, args ...any) {
	if l.rank.First() {
		l.console.note(format, args...)
	}
}

// advance moves the progress bar.
func (l *logger) advance(iterations int64) {
	if l.rank.Last() {
		l.console.advance(iterations)
	}
}

// parameters counts what each rank of the first copy of the model holds.
func (l *logger) parameters(params []*mpu.Param) error {
	n := int64(0)
	for _, p := range params {
		n += p.Len()
	}
	if l.rank.Place.DP != 0 {
		return nil
	}
	return l.console.line(report.ParameterCount(l.rank.Place.TP, l.rank.Place.PP, n))
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
	l.advance(1)
	it := r.Engine.Iteration
	var paramsNorm *float64
	if l.config.Log.ParamsNorm {
		norm, err := r.Engine.Optimizer.ParamsNorm()
		if err != nil {
			return err
		}
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
		t := l.flopsPerRank(s) / e.Elapsed.Seconds() / 1e12
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
	if err := l.timing(r.Engine.Iteration, iterations); err != nil {
		return err
	}
	return l.stages(r, s)
}

// stages tells what the stages of the last copy of the model did in this step.
func (l *logger) stages(r *Run, s stepLog) error {
	if !r.Engine.measuresStages() {
		return nil
	}
	u := s.result.Pipeline
	all, err := l.gather([]float64{u.Forward.Seconds(), u.Backward.Seconds(), u.Waiting.Seconds(), u.Total.Seconds()})
	if err != nil {
		return err
	}
	at, stages := l.rank.Sizes.At(len(all)-1), make(schedule.Measured, l.rank.Sizes.PP)
	span := func(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }
	for i := range stages {
		at.PP = i
		row := all[l.rank.Sizes.Rank(at)]
		stages[i] = schedule.Usage{Forward: span(row[0]), Backward: span(row[1]), Waiting: span(row[2]), Total: span(row[3])}
	}
	return l.line(stages.Line(l.config.Schedule(s.batch.Micros, false)))
}

// flopsPerRank is what one rank has to compute of an iteration.
func (l *logger) flopsPerRank(s stepLog) float64 {
	return l.config.Model.FLOPs(s.batch.Running, l.config.SeqLength) / float64(l.rank.Sizes.World())
}

// mfu is what the ranks of this process computed of the iteration, as a fraction
// of what its device can; 0 where that is not measured.
func (l *logger) mfu(r *Run, s stepLog, took time.Duration) float64 {
	if r.peak == 0 {
		return 0
	}
	ranks := 1.0
	if l.rank.RunName == "" { // all are in this process, and share its device
		ranks = float64(l.rank.Sizes.World())
	}
	return ranks * l.flopsPerRank(s) / took.Seconds() / r.peak
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
	return &report.Extras{MFU: l.mfu(r, s, took), Iteration: int(r.Engine.Iteration), Loss: s.result.Loss, Total: took, Forward: s.result.Forward, Backward: s.result.Backward,
		TokensPerSecond: float64(s.batch.Running*l.config.SeqLength) / took.Seconds()}
}

// memory prints the memory line after the first two steps, and at
// --log-memory-interval.
func (l *logger) memory(r *Run) error {
	if l.memories >= 2 && !due(r.Engine.Iteration, l.config.Log.MemoryInterval) {
		return nil
	}
	l.memories++
	if l.config.Log.Memory {
		if err := l.memoryTable(r.device.Arena.Usage()); err != nil {
			return err
		}
	}
	if l.rank.Place.DP != 0 {
		return nil
	}
	return l.console.line(memoryOf(r.device).Line(l.rank.Number, int(r.Engine.Iteration)))
}

// memoryTable shows what each rank holds for what.
func (l *logger) memoryTable(u device.Usage) error {
	var names []string
	var mine []float64
	for p := range device.Purposes {
		names, mine = append(names, p.String()), append(mine, float64(u.Peak[p]))
	}
	all, err := l.gather(append(mine, float64(u.Max)))
	if err != nil {
		return err
	}
	ranks := make([]report.RankMemory, len(all))
	for i, row := range all {
		at := l.rank.Sizes.At(i)
		ranks[i] = report.RankMemory{Rank: fmt.Sprintf("%d (tp %d, pp %d, dp %d)", i, at.TP, at.PP, at.DP), ByPurpose: row[:len(names)], AtOnce: row[len(names)]}
	}
	return l.line(report.MemoryTable(names, ranks))
}

func memoryOf(d *device.Device) *report.Memory {
	u := d.Arena.Usage()
	return &report.Memory{Allocated: u.Allocated, MaxAllocated: u.Max, Reserved: u.Reserved, MaxReserved: u.Reserved, Allocations: u.Blocks}
}

// timing prints the timers of the level asked for.
func (l *logger) timing(iteration int64, iterations int) error {
	names := report.LoggedTimers(l.config.Log.TimingLevel)
	seconds, err := l.gather(l.timers.Take(names))
	if err != nil {
		return err
	}
	if l.events != nil && l.config.Log.TimersToTensorboard {
		for i, name := range names {
			if longest := slowest(seconds, i); longest > 0 {
				l.events.Scalar(name+"-time", longest/float64(iterations), iteration)
			}
		}
	}
	text := report.TimerLines(l.config.Log.TimingOption, names, seconds, iterations)
	if text == "" {
		return nil
	}
	return l.line(text)
}

// gather brings one row of numbers of every rank together, on all of them.
func (l *logger) gather(row []float64) ([][]float64, error) {
	n, world := int64(len(row)), int64(l.rank.World.Size())
	if n == 0 || world == 1 {
		return [][]float64{row}, nil
	}
	d := l.rank.Device
	s := d.Arena.Scope(device.Workspace)
	defer s.Release()
	mine, all := put(d, s, device.F64, row), s.Alloc(device.F64, world*n)
	if err := l.rank.World.AllGather(all, mine).Wait(); err != nil {
		return nil, err
	}
	return slices.Collect(slices.Chunk(device.ReadSlice[float64](d, all), int(n))), nil
}

// slowest is the most that a rank spent in column i.
func slowest(seconds [][]float64, i int) (most float64) {
	for _, row := range seconds {
		most = max(most, row[i])
	}
	return most
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
		t := l.flopsPerRank(s) / seconds / 1e12
		out.Throughput = &t
	}
	if c.LossScaleToTensorboard {
		scale := r.Engine.Scaler.Scale()
		out.LossScale = &scale
	}
	if c.WorldSizeToTensorboard {
		world := l.rank.Sizes.World()
		out.WorldSize = &world
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
		WeightDecay: report.Number(s.result.Decay), GlobalBatchSize: s.batch.Global, LossScale: report.Number(s.result.Scale),
		GradNorm: number(gradNorm(s)), ParamsNorm: number(paramsNorm), NumZeros: number(l.zeros(s)), Skipped: s.result.Update.Skipped,
		Seconds: report.Number(seconds), TokensPerSecond: report.Number(float64(tokens) / seconds),
		TFLOPs: report.Number(l.flopsPerRank(s) / seconds / 1e12), MFU: report.Number(l.mfu(r, s, took)),
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
	s := &report.Step{Time: time.Now(), Iteration: int(r.Engine.Iteration), ConsumedSamples: r.at.ConsumedTrain,
		ConsumedTokens: r.at.ConsumedTrain * int64(l.config.SeqLength), Validation: split,
		Loss: map[string]report.Number{"lm loss": report.Number(loss)}}
	if err := l.tell(s); err != nil {
		return err
	}
	if l.events != nil && split == "validation" {
		l.events.Evaluation(losses, int(r.Engine.Iteration), r.at.ConsumedTrain, l.config.Log.ValidationPPLTensorboard)
	}
	return l.line(report.Validation(where, losses))
}
