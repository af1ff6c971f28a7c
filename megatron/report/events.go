package report

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"monotron/fault"
)

// Events writes a TensorBoard event file. Not for several goroutines.
type Events struct {
	file    *os.File
	out     *bufio.Writer
	queue   int // entries between flushes
	waiting int
	err     error // the first; later writes are dropped
}

var eventFiles atomic.Int64 // tells files of one process apart

// NewEvents makes a new event file in folder, which is made if need be. Entries
// reach the disk after queue of them, and with Flush.
func NewEvents(folder string, queue int) (*Events, error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, fault.Errorf(fault.IO, "--tensorboard-dir: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "host"
	}
	now := time.Now()
	name := fmt.Sprintf("events.out.tfevents.%010d.%s.%d.%d", now.Unix(), host, os.Getpid(), eventFiles.Add(1)-1)
	file, err := os.OpenFile(filepath.Join(folder, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, fault.Errorf(fault.IO, "--tensorboard-dir: %w", err)
	}
	e := &Events{file: file, out: bufio.NewWriter(file), queue: max(1, queue)}
	e.write(now, 0, versionPayload())
	return e, e.Flush()
}

func (e *Events) write(at time.Time, step int64, payload []byte) {
	if e.err != nil {
		return
	}
	_, e.err = e.out.Write(record(event(float64(at.UnixNano())/1e9, step, payload)))
	if e.waiting++; e.waiting >= e.queue {
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
		return fault.Errorf(fault.IO, "TensorBoard events %s: %w", e.file.Name(), e.err)
	}
	return nil
}

// Close flushes and closes the file.
func (e *Events) Close() error {
	err := e.Flush()
	if cerr := e.file.Close(); err == nil && cerr != nil {
		err = fault.Errorf(fault.IO, "TensorBoard events: %w", cerr)
	}
	return err
}

// Scalars is what a training step puts into event files. Nil pointers are left
// out. Tags are Megatron's (training_log in megatron/training/training.py).
type Scalars struct {
	Iteration       int
	ConsumedSamples int64
	SkippedSamples  int64
	LearningRate    float64
	BatchSize       int
	Losses          []Value
	LossScale       *float64
	WorldSize       *int
	GradNorm        *float64
	NumZeros        *float64
	ParamsNorm      *float64
	Memory          *Memory
	MoE             []Value
	IterationTime   *float64  // seconds, with the log line
	Throughput      *float64  // TFLOP/s per device, with the log line
	TimerNames      []string  // with the log line
	TimerSeconds    []float64 // slowest rank, per iteration
}

// Training adds the scalars of one step.
func (e *Events) Training(s *Scalars) {
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
	both("learning-rate", s.LearningRate)
	if s.SkippedSamples > 0 {
		e.Scalar("skipped-train-samples", float64(s.SkippedSamples), n)
	}
	both("batch-size", float64(s.BatchSize))
	for _, loss := range s.Losses {
		both(loss.Name, loss.Value)
	}
	maybe("loss-scale", s.LossScale)
	if s.WorldSize != nil {
		both("world-size", float64(*s.WorldSize))
	}
	maybe("grad-norm", s.GradNorm)
	maybe("num-zeros", s.NumZeros)
	maybe("params-norm", s.ParamsNorm)
	if m := s.Memory; m != nil {
		e.Scalar("mem-reserved-bytes", float64(m.Reserved), n)
		e.Scalar("mem-allocated-bytes", float64(m.Allocated), n)
		e.Scalar("mem-max-allocated-bytes", float64(m.MaxAllocated), n)
		e.Scalar("mem-allocated-count", float64(m.Allocations), n)
	}
	for _, loss := range s.MoE {
		e.Scalar(loss.Name, loss.Value, n)
	}
	if s.IterationTime != nil {
		e.Scalar("iteration-time", *s.IterationTime, n)
	}
	if s.Throughput != nil {
		e.Scalar("throughput", *s.Throughput, n)
	}
	for i, name := range s.TimerNames {
		if s.TimerSeconds[i] > 0 {
			e.Scalar(name+"-time", s.TimerSeconds[i], n)
		}
	}
}

// Evaluation adds the losses of a validation; ppl adds their perplexities.
func (e *Events) Evaluation(losses []Value, iteration int, samples int64, ppl bool) {
	for _, loss := range losses {
		tag := loss.Name + " validation"
		e.Scalar(tag, loss.Value, int64(iteration))
		e.Scalar(tag+" vs samples", loss.Value, samples)
		if ppl {
			e.Scalar(tag+" ppl", Perplexity(loss.Value), int64(iteration))
			e.Scalar(tag+" ppl vs samples", Perplexity(loss.Value), samples)
		}
	}
}
