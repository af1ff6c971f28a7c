package training

import (
	"path/filepath"
	"slices"

	"monotron/megatron/config"
	"monotron/megatron/telemetry"
	"monotron/mpu/health"
	"monotron/mpu/ranks"
)

// alarm gives a step its alerts, and notes them.
func (l *logger) alarm(s *telemetry.Step) {
	if l.rules == nil {
		return
	}
	s.Alerts = l.rules.Check(s)
	for _, a := range s.Alerts {
		l.notes.From("alert").At(l.current).Warn("step %d: %s", s.Iteration, a.Text)
	}
}

// writesTo are the folders that the run fills.
func writesTo(c *config.Run) (folders []string) {
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

// worked is what a rank had done at the log line before.
type worked struct {
	own   [health.Phases]float64
	steps int64
}

// stepPhases are those of a training step.
var stepPhases = []health.Phase{health.Data, health.Forward, health.Backward, health.Reduce, health.Optimizer}

// since is what the rank did itself since the log line before, in seconds a step by phase;
// any: there was one.
func (w *worked) since(r *ranks.Rank) (seconds []float64, any bool) {
	before := *w
	w.own, w.steps = r.Worked()
	for _, p := range stepPhases {
		seconds = append(seconds, (w.own[p]-before.own[p])/float64(max(1, w.steps-before.steps)))
	}
	return seconds, before.steps > 0
}
