package telemetry

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"monotron/internal/exitcode"
)

// EventOptions say what of a step goes into event files, beside what always does.
type EventOptions struct {
	Queue         int // entries between flushes
	Every         int // steps between entries; 0: none of training
	Throughput    bool
	LossScale     bool
	Ranks         bool // "world-size"
	Memory        bool
	Timers        bool // with each log line
	Perplexity    bool // of evaluations
	MixtureLayers bool // balancing losses of each layer of experts
}

// Events writes a TensorBoard event file. Not for several goroutines.
type Events struct {
	file    *os.File
	out     *bufio.Writer
	options EventOptions
	waiting int
	err     error // the first; later writes are dropped
}

var eventFiles atomic.Int64 // tells files of one process apart

// NewEvents makes a new event file in folder, which is made if need be. Entries
// reach the disk after o.Queue of them, and with Flush.
func NewEvents(folder string, o EventOptions) (*Events, error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, exitcode.Errorf(exitcode.IO, "--tensorboard-dir: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "host"
	}
	now := time.Now()
	name := fmt.Sprintf("events.out.tfevents.%010d.%s.%d.%d", now.Unix(), host, os.Getpid(), eventFiles.Add(1)-1)
	file, err := os.OpenFile(filepath.Join(folder, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, exitcode.Errorf(exitcode.IO, "--tensorboard-dir: %w", err)
	}
	e := &Events{file: file, out: bufio.NewWriter(file), options: o}
	e.write(now, 0, versionPayload())
	return e, e.Flush()
}

func (e *Events) write(at time.Time, step int64, payload []byte) {
	if e.err != nil {
		return
	}
	_, e.err = e.out.Write(record(event(float64(at.UnixNano())/1e9, step, payload)))
	if e.waiting++; e.waiting >= e.options.Queue {
		e.Flush()
	}
}

// Scalar adds a point to the curve tag. step is the iteration, or the consumed
// samples for tags that end in " vs samples".
func (e *Events) Scalar(tag string, value float64, step int64) {
	e.write(time.Now(), step, scalarPayload(tag, float32(value)))
}

// Text adds a text, shown as Markdown.
func (e *Events) Text(tag, text string, step int64) {
	e.write(time.Now(), step, textPayload(tag, text))
}

// Flush brings all entries to the file. Its error, like Close's, is the first
// of all writes.
func (e *Events) Flush() error {
	e.waiting = 0
	if err := e.out.Flush(); e.err == nil {
		e.err = err
	}
	if e.err != nil {
		return e.fail()
	}
	return nil
}

// Close flushes and closes the file.
func (e *Events) Close() error {
	err := e.Flush()
	if cerr := e.file.Close(); err == nil && cerr != nil {
		err = exitcode.Errorf(exitcode.IO, "TensorBoard events: %w", cerr)
	}
	return err
}

// Take adds the scalars of a step. Tags are Megatron's (training_log in
// megatron/training/training.py).
func (e *Events) Take(s *Step) error {
	switch {
	case s.Split == Validation, s.Split == Train:
		e.evaluation(s)
	case s.Split != "":
	default:
		if e.options.Every > 0 && s.Iteration%e.options.Every == 0 {
			e.training(s)
		}
		if s.Line != nil && e.options.Timers {
			e.timers(s)
		}
	}
	if e.err != nil {
		return e.fail()
	}
	return nil
}

// fail is the first error of all: what follows it in the file could not be read.
func (e *Events) fail() error {
	return exitcode.Errorf(exitcode.IO, "--tensorboard-dir: %s: %w; no further entries are written", e.file.Name(), e.err)
}

// training adds the scalars of one step.
func (e *Events) training(s *Step) {
	n := int64(s.Iteration)
	both := func(tag string, value float64) {
		e.Scalar(tag, value, n)
		e.Scalar(tag+" vs samples", value, s.ConsumedSamples)
	}
	maybe := func(tag string, value *float64) {
		if value != nil {
			both(tag, *value)
		}
	}
	both("learning-rate", s.NextLearningRate)
	if s.SkippedSamples > 0 {
		e.Scalar("skipped-train-samples", float64(s.SkippedSamples), n)
	}
	both("batch-size", float64(s.GlobalBatchSize))
	for _, loss := range s.Losses {
		both(loss.Name, loss.Value)
	}
	for _, v := range s.Preference {
		both(s.tag(v.Name), v.Value)
	}
	if e.options.LossScale {
		both("loss-scale", s.NextLossScale)
	}
	if e.options.Ranks {
		both("world-size", float64(s.Ranks))
	}
	maybe("grad-norm", s.GradNorm)
	maybe("grad-norm-mtp", s.MTPGradNorm)
	maybe("num-zeros", s.NumZeros)
	maybe("params-norm", s.ParamsNorm)
	if e.options.Memory {
		e.memory(&s.Memory, n)
	}
	for _, loss := range s.MoE {
		e.Scalar(loss.Name, loss.Value, n)
	}
	if e.options.MixtureLayers {
		e.mixtures(s, n)
	}
	e.Scalar("iteration-time", s.Elapsed.Seconds(), n)
	if e.options.Throughput {
		e.Scalar("throughput", s.TFLOPs(), n)
	}
}

// mixtures are the losses of each layer of experts, under Megatron's names.
func (e *Events) mixtures(s *Step, n int64) {
	for _, layer := range s.MoELayers {
		for _, loss := range layer.Losses {
			e.Scalar(fmt.Sprintf("moe/%s_layer_%d", loss.Name, layer.Number), loss.Value, n)
		}
	}
}

func (e *Events) memory(m *Memory, n int64) {
	e.Scalar("mem-reserved-bytes", float64(m.Reserved), n)
	e.Scalar("mem-allocated-bytes", float64(m.Allocated), n)
	e.Scalar("mem-max-allocated-bytes", float64(m.MaxAllocated), n)
	e.Scalar("mem-allocated-count", float64(m.Allocations), n)
}

// timers adds what the slowest rank took an iteration, by name.
func (e *Events) timers(s *Step) {
	t := &s.Line.Timers
	for i, name := range t.Names {
		if longest := t.slowest(i); longest > 0 {
			e.Scalar(name+"-time", longest/float64(s.Line.Iterations), int64(s.Iteration))
		}
	}
}

// tag is a number's name among Megatron's, or TRL's own where it is one of rewards.
func (s *Step) tag(name string) string {
	if s.rewarded() {
		return name
	}
	return strings.ReplaceAll(name, "_", "-")
}

// evaluation adds the losses of a validation, and their perplexities where asked for.
func (e *Events) evaluation(s *Step) {
	for _, v := range s.Preference {
		e.Scalar(s.tag(v.Name)+" validation", v.Value, int64(s.Iteration))
	}
	for _, loss := range s.Losses {
		tag := loss.Name + " validation"
		if s.Split == Train {
			tag = loss.Name + " train estimate"
		}
		e.Scalar(tag, loss.Value, int64(s.Iteration))
		e.Scalar(tag+" vs samples", loss.Value, s.ConsumedSamples)
		if e.options.Perplexity && len(s.Preference) == 0 {
			e.Scalar(tag+" ppl", Perplexity(loss.Value), int64(s.Iteration))
			e.Scalar(tag+" ppl vs samples", Perplexity(loss.Value), s.ConsumedSamples)
		}
	}
}
