package schedule

import (
	"fmt"
	"strings"
	"time"
)

// Usage is what a stage did with its time in one Run.
type Usage struct {
	Forward, Backward time.Duration
	Waiting           time.Duration // in exchanges, until they ended
	Total             time.Duration
}

// Busy is the time a stage computed.
func (u Usage) Busy() time.Duration { return u.Forward + u.Backward }

// RunMeasured is Run, and what the stage did with its time. now is the time
// when all work given to the device is done; nil: the host's clock, right where
// the worker computes on the host.
func RunMeasured[T any](acts []Action, w Worker[T], l Link[T], now func() time.Time) (Usage, error) {
	if now == nil {
		now = time.Now
	}
	m := &meter[T]{worker: w, link: l, now: now}
	start := now()
	err := Run(acts, m, m)
	m.usage.Total = now().Sub(start)
	return m.usage, err
}

// meter stands between the executor and a stage.
type meter[T any] struct {
	worker Worker[T]
	link   Link[T]
	now    func() time.Time
	usage  Usage
}

func (m *meter[T]) add(to *time.Duration, start time.Time) { *to += m.now().Sub(start) }

func (m *meter[T]) Forward(micro, chunk int, in T) (T, error) {
	defer m.add(&m.usage.Forward, m.now())
	return m.worker.Forward(micro, chunk, in)
}

func (m *meter[T]) Backward(micro, chunk int, dout T) (T, error) {
	defer m.add(&m.usage.Backward, m.now())
	return m.worker.Backward(micro, chunk, dout)
}

func (m *meter[T]) Exchange(transfers []Transfer, values []T) (func() ([]T, error), error) {
	start := m.now()
	wait, err := m.link.Exchange(transfers, values)
	m.add(&m.usage.Waiting, start)
	return func() ([]T, error) {
		defer m.add(&m.usage.Waiting, m.now())
		return wait()
	}, err
}

// Measured joins what the stages of one pipeline did in one step.
type Measured []Usage

// Bubble is the time all stages did not compute over the time they computed,
// each counted until the slowest was done: what Config.BubbleFraction says of
// equal stages on links that take no time.
func (m Measured) Bubble() float64 {
	var end, busy time.Duration
	for _, u := range m {
		end, busy = max(end, u.Total), busy+u.Busy()
	}
	if busy == 0 {
		return 0
	}
	return float64(time.Duration(len(m))*end-busy) / float64(busy)
}

// Line is it as one line of a log, milliseconds a stage, the formula's bubble
// last.
func (m Measured) Line(c Config) string {
	list := func(of func(Usage) time.Duration) string {
		words := make([]string, len(m))
		for i, u := range m {
			words[i] = fmt.Sprintf("%.1f", of(u).Seconds()*1e3)
		}
		return strings.Join(words, " ")
	}
	return fmt.Sprintf("pipeline stages (ms) | forward: %s | backward: %s | waiting: %s | bubble: %.1f%% of the work (equal stages: %.1f%%)",
		list(func(u Usage) time.Duration { return u.Forward }), list(func(u Usage) time.Duration { return u.Backward }),
		list(func(u Usage) time.Duration { return u.Waiting }), 100*m.Bubble(), 100*c.BubbleFraction())
}
