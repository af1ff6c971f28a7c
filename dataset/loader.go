package dataset

import "sync"

// Loader reads micro-batches ahead of their use (--num-workers). It expects that the
// micro-batches are asked for in order; if another one is asked for, it starts reading
// from there.
//
// It holds at most 2 micro-batches a worker. The goroutines that read end when
// the queue is full and are started again when there is space, so a Loader that
// is no longer used holds memory but no goroutine.
type Loader struct {
	set     Dataset
	numbers func(at int64) ([]int64, error)
	advance int64
	workers int
	queue   []*reading // in order, the first is asked for next
	end     int64      // position of the next reading
	stopped bool       // the last reading failed: nothing follows it
	slots   chan struct{}
}

// reading is a micro-batch that is being read.
type reading struct {
	at      int64
	numbers []int64
	samples []Sample
	err     error
	wait    sync.WaitGroup
}

// NewLoader reads samples of set with `workers` goroutines; 0: only when they are
// asked for. numbers gives the samples of the micro-batch at a position, which counts
// consumed samples; the next micro-batch is at position + advance. It is called by one
// goroutine at a time.
func NewLoader(set Dataset, numbers func(at int64) ([]int64, error), advance int64, workers int) *Loader {
	return &Loader{set: set, numbers: numbers, advance: advance, workers: workers, slots: make(chan struct{}, max(1, workers))}
}

// MicroBatch gives the samples of the micro-batch at a position, and their numbers.
func (l *Loader) MicroBatch(at int64) ([]Sample, []int64, error) {
	if l.workers == 0 {
		numbers, err := l.numbers(at)
		if err != nil {
			return nil, nil, err
		}
		samples, err := readSamples(l.set, numbers)
		return samples, numbers, err
	}
	if len(l.queue) == 0 || l.queue[0].at != at {
		l.queue, l.end, l.stopped = nil, at, false
	}
	l.fill()
	r := l.queue[0]
	l.queue = l.queue[1:]
	r.wait.Wait()
	if !l.stopped {
		l.fill()
	}
	return r.samples, r.numbers, r.err
}

// fill starts to read until the queue is full.
func (l *Loader) fill() {
	for !l.stopped && len(l.queue) < 2*l.workers {
		r := &reading{at: l.end}
		l.queue = append(l.queue, r)
		l.end += l.advance
		if r.numbers, r.err = l.numbers(r.at); r.err != nil {
			l.stopped = true
			return
		}
		r.wait.Go(func() {
			l.slots <- struct{}{} // so many read at once
			r.samples, r.err = readSamples(l.set, r.numbers)
			<-l.slots
		})
	}
}

func readSamples(set Dataset, numbers []int64) ([]Sample, error) {
	samples := make([]Sample, 0, len(numbers))
	for _, n := range numbers {
		s, err := set.Sample(n)
		if err != nil {
			return nil, err
		}
		samples = append(samples, s)
	}
	return samples, nil
}
