package training

import (
	"fmt"
	"sync"
	"time"

	"monotron/internal/logging"
	"monotron/mpu/health"
)

// longStep is when a note first says that a step is still under way.
const longStep = 10 * time.Second

// pulse logs the progress of a step that takes long. The first rank has one; a nil
// pulse is silent.
type pulse struct {
	notes *logging.Notes
	after time.Duration // until the first word; each later one waits twice as long, a minute at most

	mu       sync.Mutex
	timer    *time.Timer // nil: no step is under way
	began    time.Time
	step     int64
	phase    health.Phase
	forwards int    // forward passes begun
	of       int    // of the complete step on this rank; 0: not known yet
	unit     string // what one is
}

// newPulse listens to what r's rank enters, unless somebody else does.
func newPulse(r *Run) *pulse {
	if !r.rank.First() || r.rank.Heard != nil {
		return nil
	}
	p := &pulse{notes: r.log.notes, after: longStep}
	r.rank.Heard = p.enter
	return p
}

// begin is the start of a step.
func (p *pulse) begin(step int64) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.step, p.began, p.phase, p.forwards, p.of = step, time.Now(), health.Data, 0, 0
	p.timer = time.AfterFunc(p.after, p.beat)
}

// expect says what the step has: each micro-batch passes through each of the rank's chunks.
func (p *pulse) expect(micros, chunks int) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of, p.unit = micros*chunks, "micro-batch"
	if chunks > 1 {
		p.unit = "forward pass"
	}
}

// enter hears what the rank is at.
func (p *pulse) enter(phase health.Phase, _ int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.phase = phase; phase == health.Forward {
		p.forwards++
	}
}

// end is that of the step.
func (p *pulse) end() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer.Stop()
	p.timer = nil
}

func (p *pulse) beat() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer == nil {
		return // it has ended meanwhile
	}
	so := time.Since(p.began)
	p.notes.At(p.step).Info("%s", p.text(so))
	p.timer.Reset(min(so, time.Minute))
}

// text is where the step is, and since when.
func (p *pulse) text(so time.Duration) string {
	text := fmt.Sprintf("step %d is in %s", p.step, health.At(p.phase, 0))
	if p.of > 0 && p.forwards > 0 {
		text += fmt.Sprintf(", %s %d of %d", p.unit, min(p.forwards, p.of), p.of)
	}
	return text + fmt.Sprintf(", since %s (%.0f s)", p.began.Format(time.TimeOnly), so.Seconds())
}
