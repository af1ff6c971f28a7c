package training

import (
	"errors"
	"path/filepath"
	"slices"
	"time"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/internal/logging"
	"monotron/megatron/config"
	"monotron/megatron/engine"
	"monotron/megatron/telemetry"
	"monotron/megatron/telemetry/tracker"
	"monotron/mpu"
	"monotron/mpu/ranks"
)

// logger hands the record of each step to what shows it. Every rank has one and calls it
// alike: some numbers are made by all ranks together. The last rank, which knows the loss,
// prints; notes that all would give come from the first.
type logger struct {
	console *console
	notes   *logging.Notes // of this rank
	rank    *ranks.Rank
	config  *config.Run
	timers  *telemetry.Timers
	trace   *telemetry.Trace
	sinks   telemetry.Sinks
	about   *telemetry.About // of the last rank; nil: another's

	iterations     int   // since the log line before
	lines          int   // log lines so far
	memoryReported bool  // memory has been logged when all of it was in use
	current        int64 // iteration under way

	rules  *telemetry.Rules // of the last rank; nil: another's
	worked worked
	scorer telemetry.Scorer
}

// stepLog is one iteration as the loop saw it.
type stepLog struct {
	started time.Time
	data    time.Duration // waiting for the batch
	batch   config.BatchSize
	result  engine.Result
}

func newLogger(r *Run) (*logger, error) {
	l := &logger{console: r.console, notes: r.console.Notes.From("training").Rank(r.rank.Number), rank: r.rank, config: &r.Config,
		timers: telemetry.NewTimers(r.Config.Log.TimingLevel), trace: r.trace}
	l.timers.Trace, l.timers.Rank = r.trace, r.rank.Number
	if l.rank.Last() {
		l.rules = &telemetry.Rules{Disks: writesTo(l.config), Free: telemetry.FreeBytes, Imbalance: l.config.Log.ImbalanceLimit}
		l.about = r.about(r.rank)
		if err := l.open(); err != nil {
			return nil, errors.Join(err, l.close())
		}
	}
	if l.rank.Last() && r.Outcome != nil {
		l.sinks = append(l.sinks, r.Outcome)
	}
	lines := &telemetry.Lines{Print: l.console.line, Rank: l.rank.Number, Last: l.rank.Last(), Throughput: l.config.Log.Throughput, Extras: l.config.Log.Extras}
	l.sinks = append(l.sinks, telemetry.Lasting("standard output", lines, l.notes.Warn))
	return l, nil
}

// open opens the sinks that the run asks for.
func (l *logger) open() error {
	c := &l.config.Log
	if c.JSONL != "" {
		if err := l.about.Write(c.JSONL); err != nil {
			l.notes.Warn("--log-jsonl: the description of the run cannot be written: %v", err)
		}
	}
	// In this order; a sink that fails later is reported and left out, training continues.
	for _, sink := range []struct {
		wanted bool
		name   string
		open   func() (telemetry.Sink, error)
	}{
		{c.MetricsAddr != "", "--metrics-addr", l.metrics},
		{c.JSONL != "", "--log-jsonl", func() (telemetry.Sink, error) { return telemetry.OpenJSONL(c.JSONL) }},
		{c.TensorboardDir != "", "--tensorboard-dir", l.events},
		{c.MLflowURI != "", "--mlflow-tracking-uri", l.mlflow},
		{c.OTLPEndpoint != "", "--otlp-endpoint", l.otlp},
		{c.Dashboard != "", "--dashboard-addr", l.page},
		{c.AlertCommand != "", "--alert-command", l.alertCommand},
		{l.trace != nil, "--profile", func() (telemetry.Sink, error) { return l.trace.Marks(l.rank.Number), nil }},
	} {
		if !sink.wanted {
			continue
		}
		opened, err := sink.open()
		if err != nil {
			return err
		}
		l.sinks = append(l.sinks, telemetry.Lasting(sink.name, opened, l.notes.Warn))
	}
	return nil
}

func (l *logger) alertCommand() (telemetry.Sink, error) {
	return telemetry.RunAlertCommand(l.config.Log.AlertCommand, time.Duration(l.config.Watch.StallSeconds)*time.Second, l.notes.Warn), nil
}

func (l *logger) events() (telemetry.Sink, error) {
	e, err := telemetry.NewEvents(l.config.Log.TensorboardDir, eventOptions(&l.config.Log))
	if err == nil {
		e.Describe(l.about)
	}
	return e, err
}

// trackersAtEnd is how long a run's end waits at most for a server of trackers to take one more group of steps.
const trackersAtEnd = 20 * time.Second

// trackerOptions are what sinks that send to a server have in common.
func (l *logger) trackerOptions() tracker.Options {
	return tracker.Options{Warn: l.notes.Warn, AtEnd: trackersAtEnd}
}

func (l *logger) mlflow() (telemetry.Sink, error) {
	c := &l.config.Log
	save := ""
	if l.config.Checkpoint.Save != "" {
		save, _ = filepath.Abs(l.config.Checkpoint.Save) // "" without a working directory: a resumed run is then new
	}
	return tracker.NewMLflow(tracker.MLflow{URI: c.MLflowURI, Experiment: c.MLflowExperiment, About: l.about, Save: save}, l.trackerOptions())
}

func (l *logger) otlp() (telemetry.Sink, error) {
	return tracker.NewOTLP(l.config.Log.OTLPEndpoint, l.about, l.trackerOptions())
}

func (l *logger) metrics() (telemetry.Sink, error) {
	m, err := telemetry.ServeMetrics(l.config.Log.MetricsAddr, Version)
	if err != nil {
		return nil, err
	}
	l.notes.Info("metrics at http://%s/metrics", m.Addr())
	return m, nil
}

// eventOptions are what goes into TensorBoard's files.
func eventOptions(c *config.Log) telemetry.EventOptions {
	return telemetry.EventOptions{Queue: c.TensorboardQueue, Every: c.TensorboardInterval, Timers: c.TimersToTensorboard, CurveOptions: telemetry.CurveOptions{
		MixtureLayers: c.MoEPerLayer, Throughput: c.Throughput, LossScale: c.LossScaleToTensorboard, Ranks: c.WorldSizeToTensorboard, Memory: c.MemoryToTensorboard, Perplexity: c.ValidationPPLTensorboard}}
}

// ended writes next to the log how the run ended: with err, or done. The run's page reads it.
func (l *logger) ended(err error) {
	if l.about == nil || l.config.Log.JSONL == "" {
		return
	}
	a := *l.about // the page of the run may be reading the other
	a.Ended = &telemetry.Ended{Time: time.Now(), Iteration: l.current, Code: exitcode.CodeOf(err)}
	if err != nil {
		a.Ended.Text = err.Error()
	}
	if err := a.Write(l.config.Log.JSONL); err != nil {
		l.notes.Warn("--log-jsonl: the record of how the run ended cannot be written: %v", err)
	}
}

func (l *logger) close() error {
	defer signs(l.rank.Outside)() // trackers may wait for their servers
	return l.sinks.Close()
}

// note writes a note that holds for all ranks.
func (l *logger) note(format string, args ...any) { l.info("training", format, args...) }

// info is a note of a component, from the first rank.
func (l *logger) info(component, format string, args ...any) {
	if l.rank.First() {
		l.notes.From(component).At(l.current).Info(format, args...)
	}
}

// advance moves the progress bar.
func (l *logger) advance(iterations int64) {
	if l.rank.Last() {
		l.console.bar.Add(iterations)
	}
}

// parameters counts what each rank of the first copy of the model holds.
func (l *logger) parameters(params []*mpu.Param) error {
	n := int64(0)
	for _, p := range params {
		n += p.Len()
	}
	if l.rank.Coordinates.DP != 0 {
		return nil
	}
	return l.console.line(telemetry.ParameterCount(l.rank.Coordinates.TP, l.rank.Coordinates.PP, n))
}

// tellFreezing says what --freeze-parameters, or an adapter, leaves to train.
func (r *Run) tellFreezing() error {
	if len(r.Config.FreezeParameters) == 0 && len(r.Config.Model.Adapters) == 0 {
		return nil
	}
	f, err := r.Config.Freezing()
	if err == nil {
		r.log.note("%d of %d parameters of the model are trained; %d tensors are frozen", f.Trained, f.All, len(f.Frozen))
	}
	return err
}

// begin opens an iteration: the trace records those that --profile asks for.
func (l *logger) begin(iteration int64) {
	c := &l.config.Log
	l.current = iteration
	l.trace.Record(iteration >= int64(c.ProfileStart) && (c.ProfileEnd == 0 || iteration < int64(c.ProfileEnd)))
	l.traceOps(l.trace.On())
	if iteration != int64(c.ProfileEnd)+1 || c.ProfileEnd == 0 || !l.rank.Last() {
		return
	}
	// A step has passed since: no rank is still at one that was recorded.
	if err := l.trace.Publish(); err != nil {
		l.notes.Warn("%v", err)
	}
}

// traceOps has the trace show each op of a device on the host. Where ops are only enqueued, to wait
// for each would change what is measured.
func (l *logger) traceOps(on bool) {
	d := l.rank.Device
	switch {
	case d == nil || l.trace == nil || !d.OnHost():
	case on:
		d.Observe = func(c device.Call) { l.trace.Op(c.Op.String(), c.Shape, l.rank.Number, c.Start, c.Took) }
	default:
		d.Observe = nil
	}
}

// step logs one finished iteration.
func (l *logger) step(r *Run, done stepLog) error {
	s, err := l.record(r, done)
	if err != nil {
		return err
	}
	if err := r.reconsider(s); err != nil {
		return err
	}
	l.advance(1)
	l.iterations++
	if l.lines++; l.lines == 1 || due(r.Engine.Iteration, l.config.Log.Interval) {
		s.Line, err = l.interval(r, done)
		l.iterations = 0
	}
	l.alarm(s)
	return errors.Join(l.sinks.Take(s), err)
}

// validation logs an evaluation.
func (l *logger) validation(r *Run, where, split string, e evaluated, written []telemetry.Sample) error {
	s := l.progress(r)
	s.Split, s.Where, s.Losses, s.Written = split, where, []telemetry.Value{{Name: "lm loss", Value: e.loss}}, written
	s.BitsPerByte, s.Accuracy, s.Preference = e.bitsPerByte, e.accuracy, e.preference
	return l.sinks.Take(s)
}

// gather brings one row of numbers of every rank together, on all of them.
func (l *logger) gather(row []float64) ([][]float64, error) {
	n, world := int64(len(row)), int64(l.rank.World().Size())
	if n == 0 || world == 1 {
		return [][]float64{row}, nil
	}
	d := l.rank.Device
	s := d.Arena.Scope(device.Workspace)
	defer s.Release()
	mine, all := s.Alloc(device.F64, n), s.Alloc(device.F64, world*n)
	device.WriteSlice(d, mine, row)
	if err := l.rank.World().AllGather(all, mine).Wait(); err != nil {
		return nil, err
	}
	return slices.Collect(slices.Chunk(device.ReadSlice[float64](d, all), int(n))), nil
}

// total is the sum of one number of every rank, on all of them.
func (l *logger) total(x float64) (sum float64, err error) {
	all, err := l.gather([]float64{x})
	for _, row := range all {
		sum += row[0]
	}
	return sum, err
}
