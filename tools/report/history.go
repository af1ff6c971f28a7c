package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"monotron/megatron/report"
)

// history is what a log says, without what was trained again later.
type history struct {
	Steps       []report.Entry // iterations rise
	Evaluations []report.Entry // by iteration
	Torn        int            // lines that are no step
	Replaced    int            // entries that a resumed run made again
	Restarts    []Mark
}

// parse reads a line; ok is false for one that is no step.
func parse(line []byte) (e report.Entry, ok bool) {
	err := json.Unmarshal(line, &e)
	return e, err == nil && (e.Trained != nil || e.Validation != "")
}

// take adds a line of the log.
func (h *history) take(line []byte) {
	e, ok := parse(line)
	switch {
	case !ok:
		h.Torn++
	case e.Validation != "":
		h.evaluation(e)
	default:
		h.step(e)
	}
}

// step adds a training step. One that is there already was trained again from a
// checkpoint: what followed it then is of weights that are no more.
func (h *history) step(e report.Entry) {
	if n := len(h.Steps); n > 0 && e.Iteration <= h.Steps[n-1].Iteration {
		h.Restarts = append(h.Restarts, Mark{e.Iteration, "restart", fmt.Sprintf("resumed; it had come to step %d", h.Steps[n-1].Iteration)})
		h.Steps = h.cut(h.Steps, e.Iteration)
		h.Evaluations = h.cut(h.Evaluations, e.Iteration)
	}
	h.Steps = append(h.Steps, e)
}

// cut drops the entries from an iteration on.
func (h *history) cut(list []report.Entry, iteration int) []report.Entry {
	at, _ := slices.BinarySearchFunc(list, iteration, func(e report.Entry, i int) int { return cmp.Compare(e.Iteration, i) })
	h.Replaced += len(list) - at
	return list[:at]
}

// evaluation adds one; of two of the same split at one iteration the later counts, as
// at the end of a run.
func (h *history) evaluation(e report.Entry) {
	same := func(o report.Entry) bool { return o.Iteration == e.Iteration && o.Validation == e.Validation }
	h.Evaluations = append(slices.DeleteFunc(h.Evaluations, same), e)
	slices.SortStableFunc(h.Evaluations, func(a, b report.Entry) int { return cmp.Compare(a.Iteration, b.Iteration) })
}

// alerts are those of the steps that count.
func (h *history) alerts() (marks []Mark) {
	for _, e := range h.Steps {
		for _, a := range e.Alerts {
			marks = append(marks, Mark{e.Iteration, "alert", a.Text})
		}
	}
	return marks
}

// of are the evaluations over a split.
func (h *history) of(split string) (list []report.Entry) {
	for _, e := range h.Evaluations {
		if e.Validation == split {
			list = append(list, e)
		}
	}
	return list
}

// field is a number of an entry, as the page and CSV have it; nan: not known.
type field struct {
	name string
	of   func(*report.Entry) report.Number
}

var unknown = report.Number(math.NaN())

// trained is a field that evaluations do not have.
func trained(name string, of func(*report.Trained) report.Number) field {
	return field{name, func(e *report.Entry) report.Number {
		if e.Trained == nil {
			return unknown
		}
		return of(e.Trained)
	}}
}

func known(n report.Number) report.Number {
	if n == 0 {
		return unknown
	}
	return n
}

func pointer(n *report.Number) report.Number {
	if n == nil {
		return unknown
	}
	return *n
}

// fields are the columns, in their order.
var fields = []field{
	{"iteration", func(e *report.Entry) report.Number { return report.Number(e.Iteration) }},
	{"time", func(e *report.Entry) report.Number { return report.Number(float64(e.Time.UnixMilli()) / 1000) }},
	{"tokens", func(e *report.Entry) report.Number { return report.Number(e.ConsumedTokens) }},
	{"loss", loss},
	trained("learning_rate", func(t *report.Trained) report.Number { return t.LearningRate }),
	trained("grad_norm", func(t *report.Trained) report.Number { return pointer(t.GradNorm) }),
	trained("tokens_per_second", func(t *report.Trained) report.Number { return t.TokensPerSecond }),
	trained("mfu", func(t *report.Trained) report.Number { return known(t.MFU) }),
	trained("memory_bytes", func(t *report.Trained) report.Number { return known(report.Number(t.MemoryBytes)) }),
	trained("data_seconds", dataSeconds),
	trained("seconds", func(t *report.Trained) report.Number { return t.Seconds }),
	trained("loss_scale", func(t *report.Trained) report.Number { return t.LossScale }),
	trained("skipped", func(t *report.Trained) report.Number {
		if t.Skipped {
			return 1
		}
		return 0
	}),
}

func dataSeconds(t *report.Trained) report.Number {
	if n, ok := t.PhaseSeconds["data"]; ok {
		return n
	}
	return unknown
}

func loss(e *report.Entry) report.Number {
	if n, ok := e.Loss["lm loss"]; ok {
		return n
	}
	return unknown
}

// row is an entry by fields.
func row(e *report.Entry) []report.Number {
	list := make([]report.Number, len(fields))
	for i, f := range fields {
		list[i] = f.of(e)
	}
	return list
}

// columns are entries by fields, one list a field.
func columns(entries []report.Entry) [][]report.Number {
	table := make([][]report.Number, len(fields))
	for i, f := range fields {
		table[i] = make([]report.Number, len(entries))
		for j := range entries {
			table[i][j] = f.of(&entries[j])
		}
	}
	return table
}
