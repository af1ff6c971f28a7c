package tracker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"monotron/megatron/telemetry"
)

// Limits of the queue.
const (
	mostWaiting = 10_000           // steps and evaluations; later ones are dropped
	mostAtOnce  = 100              // in one call of send; fewer while the server is slow
	patience    = 30 * time.Second // for one call of send
	firstPause  = time.Second      // before a call that failed is repeated, doubled each time
	longPause   = 30 * time.Second
	longestEnd  = 6 // times AtEnd: the longest that Close waits
)

// Options are what all senders have in common.
type Options struct {
	Warn  func(format string, args ...any)
	AtEnd time.Duration // that Close waits at most without one more group arriving
	Pause time.Duration // before the first repetition, and the longest when the run has ended; 0: firstPause
	Most  int           // steps that wait; 0: mostWaiting
	Call  time.Duration // that a call of send may take; 0: patience
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
	group   int // entries that go at once

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
	if o.Call == 0 {
		o.Call = patience
	}
	s := &sender{Options: o, name: name, send: send, queue: make(chan entry, o.Most), group: mostAtOnce}
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
	defer context.AfterFunc(s.closing, func() { time.AfterFunc(longestEnd*s.AtEnd, cancel) })()
	var list []entry
	for {
		if len(list) == 0 {
			select {
			case e := <-s.queue:
				list = append(list, e)
			case <-s.closing.Done():
			}
		}
		if list = s.waiting(list); len(list) == 0 {
			return
		}
		sent, arrived := s.deliver(ctx, list)
		if arrived {
			list = slices.Delete(list, 0, sent)
			continue
		}
		for len(list) > 0 { // the run has ended: what is left is lost
			for _, e := range list {
				s.drop(e)
			}
			list = s.waiting(nil)
		}
		return
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

// deliver sends the first of a list, as many as a group has, again and again until they arrive; false: the
// run has ended and nothing arrived for AtEnd, or ctx ended first. A server that takes too long for a group
// gets smaller ones. Each stretch of failures is one warning.
func (s *sender) deliver(ctx context.Context, list []entry) (sent int, arrived bool) {
	ended, give := s.ending(ctx)
	defer give()
	for failures := 0; ; failures++ {
		sent = min(s.group, len(list))
		err := s.once(ended, list[:sent])
		if err == nil {
			s.group = min(mostAtOnce, 2*s.group)
			if failures > 0 {
				s.recovered()
			}
			return sent, true
		}
		if errors.Is(err, context.DeadlineExceeded) {
			s.group = max(1, sent/2)
		}
		if failures == 0 {
			s.Warn("%s: %v; training continues, and the newest %d steps are kept to be sent later", s.name, err, s.Most)
		}
		if !s.rest(ended, failures) {
			return 0, false
		}
	}
}

// ending is a context that ends AtEnd after Close was called, or after now, whichever is later.
func (s *sender) ending(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.closing, func() { time.AfterFunc(s.AtEnd, cancel) })
	return ctx, func() { stop(); cancel() }
}

// rest waits before what failed is repeated: the longer the more failures there were, but after Close
// for the first pause only. It reports whether there is time for a repetition.
func (s *sender) rest(ctx context.Context, failures int) bool {
	select {
	case <-time.After(min(s.Pause<<min(failures, 20), longPause)):
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	case <-s.closing.Done():
	}
	select {
	case <-time.After(s.Pause):
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

func (s *sender) once(ctx context.Context, list []entry) error {
	ctx, cancel := context.WithTimeout(ctx, s.Call)
	defer cancel()
	return s.send(ctx, list)
}

func (s *sender) recovered() {
	if lost, from, to := s.gap(); lost > 0 {
		s.Warn("%s: the server answers again; %d entries of iterations %d to %d are missing", s.name, lost, from, to)
		return
	}
	s.Warn("%s: the server answers again, and no entries are missing", s.name)
}

// Close sends what waits, as long as something arrives: it ends AtEnd after the last group that did.
func (s *sender) Close() error {
	s.close()
	said := time.AfterFunc(2*time.Second, func() {
		s.Warn("%s: training has ended; the remaining steps are sent as long as the server accepts them, but for at most %v", s.name, longestEnd*s.AtEnd)
	})
	s.done.Wait()
	said.Stop()
	if lost, from, to := s.gap(); lost > 0 {
		s.Warn("%s: %d entries of iterations %d to %d could not be sent", s.name, lost, from, to)
	}
	return nil
}
