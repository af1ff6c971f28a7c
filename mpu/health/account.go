package health

import "time"

// account is what a rank's time goes to, by phase: of its device's, where ops run behind
// the host's back, whose times come later and in order.
type account struct {
	phase  Phase
	step   int64
	began  time.Time // of the phase
	waited time.Duration
	slept  time.Time // since when it waits for others

	own   [Phases]float64
	full  [Phases]float64 // the same when the step began
	steps int64           // begun
}

func (a *account) enter(p Phase, step int64, at time.Time) {
	if a.phase < Phases {
		a.own[a.phase] += (at.Sub(a.began) - a.waited).Seconds()
	}
	if step > a.step && p != Startup {
		a.steps++
		a.full = a.own
	}
	a.phase, a.step, a.began, a.waited = p, step, at, 0
}

func (a *account) sleep(at time.Time) { a.slept = at }
func (a *account) wake(at time.Time)  { a.waited += at.Sub(a.slept) }
