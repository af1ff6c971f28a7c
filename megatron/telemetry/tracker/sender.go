package tracker

import (
	"context"
	"sync"
	"time"

	"monotron/megatron/telemetry"
)

// Limits of the queue.
const (
	mostWaiting = 10_000           // steps and evaluations; later ones are dropped
	mostAtOnce  = 100              // in one call of send
	patience    = 30 * time.Second // for one call of send
	firstPause  = time.Second      // before a call that failed is repeated, doubled each time
	longPause   = 30 * time.Second
)

// Options are what all senders have in common.
type Options struct {
	Warn  func(format string, args ...any)
	AtEnd time.Duration // that Close waits at most for what is still to be sent
	Pause time.Duration // before the first repetition; 0: firstPause
	Most  int           // steps that wait; 0: mostWaiting
}

// entry is a step as it waits.
type entry struct {
	at        time.Time
	iteration int
	split     string
	curves    []telemetry.Curve
	written   []telemetry.Sample
	alerts    []telemetry.Alert
}

// sender hands steps to a server, from a goroutine of its own.
type sender struct {
	Options
	name string // the option that asked for it, for messages
	send func(ctx context.Context, list []entry) error

	queue   chan entry
	closing context.Context
	close   context.CancelFunc
	done    sync.WaitGroup

	mu       sync.Mutex
	lost     int // since the last message about it
	from, to int // iterations that were lost
}

func newSender(name string, o Options, send func(ctx context.Context, list []entry) error) *sender {
	if o.Pause == 0 {
		o.Pause = firstPause
	}
	if o.Most == 0 {
		o.Most = mostWaiting
	}
	s := &sender{Options: o, name: name, send: send, queue: make(chan entry, o.Most)}
	s.closing, s.close = context.WithCancel(context.Background())
	s.done.Add(1)
	go s.serve()
	return s
}

// Take queues a step; it never waits.
func (s *sender) Take(step *telemetry.Step) error {
	e := entry{at: step.Time, iteration: step.Iteration, split: step.Split, curves: telemetry.Curves(step, telemetry.AllCurves), written: step.Written, alerts: step.Alerts}
	if len(e.curves)+len(e.written)+len(e.alerts) == 0 {
		return nil
	}
	select {
	case s.queue <- e:
	default:
		s.drop(e)
	}
	return nil
}

func (s *sender) drop(e entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost == 0 {
		s.from = e.iteration
	}
	s.lost, s.to = s.lost+1, e.iteration
}

// gap is what was lost since it was last asked.
func (s *sender) gap() (lost, from, to int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lost, from, to = s.lost, s.from, s.to
	s.lost = 0
	return lost, from, to
}

// serve sends what waits, until Close and nothing waits, or Close has waited long enough.
func (s *sender) serve() {
	defer s.done.Done()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer context.AfterFunc(s.closing, func() { time.AfterFunc(s.AtEnd, cancel) })()
	for {
		var list []entry
		select {
		case e := <-s.queue:
			list = s.waiting([]entry{e})
		case <-s.closing.Done():
			if list = s.waiting(nil); len(list) == 0 {
				return
			}
		}
		if !s.deliver(ctx, list) {
			for len(list) > 0 { // the run has ended: what is left is lost
				for _, e := range list {
					s.drop(e)
				}
				list = s.waiting(nil)
			}
			return
		}
	}
}

// waiting are entries and those behind them, as many as go at once.
func (s *sender) waiting(list []entry) []entry {
	for len(list) < mostAtOnce {
		select {
		case e := <-s.queue:
			list = append(list, e)
		default:
			return list
		}
	}
	return list
}

// deliver sends a list, again and again until it arrives; false: ctx ended first. Each
// stretch of failures is one warning.
func (s *sender) deliver(ctx context.Context, list []entry) bool {
	ended := false // the run: one more attempt is made
	for failures := 0; ; failures++ {
		err := s.once(ctx, list)
		if err == nil {
			if failures > 0 {
				s.recovered()
			}
			return true
		}
		if failures == 0 {
			s.Warn("%s: %v; training continues, and the newest %d steps are kept to be sent later", s.name, err, s.Most)
		}
		if ended || ctx.Err() != nil {
			return false
		}
		select {
		case <-time.After(min(s.Pause<<min(failures, 20), longPause)):
		case <-s.closing.Done():
			ended = true
		}
	}
}

func (s *sender) once(ctx context.Context, list []entry) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return s.send(ctx, list)
}

func (s *sender) recovered() {
	if lost, from, to := s.gap(); lost > 0 {
		s.Warn("%s: the server answers again; %d entries of iterations %d to %d are missing", s.name, lost, from, to)
		return
	}
	s.Warn("%s: the server answers again; no entry is missing", s.name)
}

// Close sends what waits, for AtEnd at most.
func (s *sender) Close() error {
	s.close()
	s.done.Wait()
	if lost, from, to := s.gap(); lost > 0 {
		s.Warn("%s: %d entries of iterations %d to %d could not be sent", s.name, lost, from, to)
	}
	return nil
}
