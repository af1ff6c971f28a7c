package dashboard

import (
	"encoding/json"
	"fmt"
	"slices"

	"monotron/megatron/telemetry"
)

// History is what a log says, without what was trained again later.
type History struct {
	Steps       Table            // iterations rise
	Evaluations map[string]Table // by split, iterations rise
	Torn        int              // lines that are not steps
	Replaced    int              // entries that a resumed run made again
	Restarts    []Mark

	alerts  []Mark
	written []Written // the newest last
	latest  Latest
}

// Written is a text that the model wrote at an evaluation.
type Written struct {
	Iteration int `json:"iteration"`
	telemetry.Sample
}

// mostWritten texts are kept.
const mostWritten = 50

// lastIteration is the last that tables, whose numbers are float64, tell from the one before it.
const lastIteration = 1 << 53

// Latest is what the newest steps say apart from curves. A value that a step lacks is of one
// before it.
type Latest struct {
	TrainIters int                           `json:"train_iters"`
	Memory     map[string]telemetry.Number   `json:"memory"`     // bytes by purpose,
	Planned    map[string]telemetry.Number   `json:"planned"`    // and what they were to be
	Ranks      []telemetry.Number            `json:"ranks"`      // own seconds a step,
	Scores     []telemetry.Number            `json:"scores"`     // and how fast that is: against other ranks,
	OwnScores  []telemetry.Number            `json:"own_scores"` // and against the rank itself
	Experts    map[string][]telemetry.Number `json:"experts"`    // shares by layer
	Iteration  int                           `json:"iteration"`
}

func newHistory() History {
	return History{Steps: newTable(), Evaluations: map[string]Table{}}
}

// parse reads a line; ok is false for one that is not a step.
func parse(line []byte) (e telemetry.Entry, ok bool) {
	err := json.Unmarshal(line, &e)
	return e, err == nil && (e.Trained != nil || e.Validation != "") && e.Iteration >= 0 && e.Iteration <= lastIteration
}

// take adds a line of the log.
func (h *History) take(line []byte) {
	e, ok := parse(line)
	switch {
	case !ok:
		h.Torn++
	case e.Validation != "":
		h.evaluation(&e)
	default:
		h.step(&e)
	}
}

// step adds a training step. One that exists already was trained again from a
// checkpoint: what followed it then is of weights that were discarded.
func (h *History) step(e *telemetry.Entry) {
	if last := h.Steps.Last("iteration"); float64(e.Iteration) <= last {
		h.Restarts = append(h.Restarts, Mark{Iteration: e.Iteration, Kind: "restart", Text: fmt.Sprintf("resumed; the run before it had reached step %d", int(last))})
		h.cut(e.Iteration)
	}
	h.Steps.add(row(e))
	for _, a := range e.Alerts {
		h.alerts = append(h.alerts, Mark{Iteration: e.Iteration, Kind: "alert", About: a.Kind, Text: a.Text})
	}
	h.latest.take(e)
}

// cut drops what is there from an iteration on.
func (h *History) cut(iteration int) {
	h.Replaced += h.Steps.cut(h.Steps.from(iteration))
	for _, t := range h.Evaluations {
		h.Replaced += t.cut(t.from(iteration))
	}
	h.alerts = slices.DeleteFunc(h.alerts, func(m Mark) bool { return m.Iteration >= iteration })
	h.written = slices.DeleteFunc(h.written, func(w Written) bool { return w.Iteration >= iteration })
}

// evaluation adds one; of two of the same split at one iteration the later counts, as
// at the end of a run.
func (h *History) evaluation(e *telemetry.Entry) {
	t, ok := h.Evaluations[e.Validation]
	if !ok {
		t = newTable()
		h.Evaluations[e.Validation] = t
	}
	t.cut(t.from(e.Iteration))
	t.add(row(e))
	if len(e.Samples) > 0 {
		h.written = slices.DeleteFunc(h.written, func(w Written) bool { return w.Iteration >= e.Iteration })
	}
	for _, s := range e.Samples {
		h.written = append(h.written, Written{e.Iteration, s})
	}
	h.written = h.written[max(0, len(h.written)-mostWritten):]
}

func (l *Latest) take(e *telemetry.Entry) {
	l.Iteration = e.Iteration
	if e.TrainIters > 0 {
		l.TrainIters = e.TrainIters
	}
	if e.MemoryByPurpose != nil {
		l.Memory, l.Planned = e.MemoryByPurpose, e.PlannedByPurpose
	}
	if e.RankSeconds != nil {
		l.Ranks, l.Scores, l.OwnScores = e.RankSeconds, e.StragglerScores, e.StragglerOwnScores
	}
	for _, layer := range e.Experts {
		if layer.Shares == nil {
			continue
		}
		if l.Experts == nil {
			l.Experts = map[string][]telemetry.Number{}
		}
		l.Experts[fmt.Sprint(layer.Layer)] = layer.Shares
	}
}
