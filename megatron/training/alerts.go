package training

import (
	"path/filepath"
	"slices"

	"monotron/megatron/report"
	"monotron/mpu/comm/watch"
)

// raise makes a the alert of the step under way. What calls it on all ranks is told once: the
// last rank tells.
func (l *logger) raise(a report.Alert) {
	if l.rank.Last() {
		l.raised = append(l.raised, a)
	}
}

// alarm gives a step its alerts, and notes them.
func (l *logger) alarm(s *report.Step) {
	if l.rules == nil {
		return
	}
	s.Alerts = append(l.raised, l.rules.Check(s)...)
	l.raised = nil
	for _, a := range s.Alerts {
		l.notes.From("alert").At(l.current).Warn("step %d: %s", s.Iteration, a.Text)
	}
}

// writesTo are the folders that the run fills.
func (c *Config) writesTo() (folders []string) {
	for _, folder := range []string{c.Checkpoint.Save, c.Log.TensorboardDir} {
		if folder != "" {
			folders = append(folders, folder)
		}
	}
	if c.Log.JSONL != "" {
		folders = append(folders, filepath.Dir(c.Log.JSONL))
	}
	slices.Sort(folders)
	return slices.Compact(folders)
}

// worked is what this rank had done at the log line before.
type worked struct {
	own   [watch.Phases]float64
	steps int64
}

// stepPhases are those of a training step.
var stepPhases = []watch.Phase{watch.Data, watch.Forward, watch.Backward, watch.Reduce, watch.Optimizer}

// work is what each rank did itself since the log line before.
func (l *logger) work(i *report.Interval) (err error) {
	if l.rank.World().Size() == 1 {
		return nil
	}
	before := l.worked
	l.worked.own, l.worked.steps = l.rank.Worked()
	mine := make([]float64, len(stepPhases))
	for n, p := range stepPhases {
		i.Work.Phases = append(i.Work.Phases, p.String())
		mine[n] = (l.worked.own[p] - before.own[p]) / float64(max(1, l.worked.steps-before.steps))
	}
	all, err := l.gather(mine)
	if before.steps > 0 {
		i.Work.Seconds = all
	}
	return err
}
