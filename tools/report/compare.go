package report

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"monotron/megatron/report"
)

// Difference is a flag that runs were given with other values.
type Difference struct {
	Flag   string   `json:"flag"`
	Values []string `json:"values"` // of each run
}

// What stands for a value that is not there.
const (
	notGiven = "(not given)"
	notKnown = "(not known)"
)

// differences lists the flags in which runs whose flags are known differ.
func differences(runs []*Run) []Difference {
	names := map[string]bool{}
	for _, r := range runs {
		for name := range r.Flags {
			names[name] = true
		}
	}
	var list []Difference
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if d, differs := difference(runs, name); differs {
			list = append(list, d)
		}
	}
	return list
}

func difference(runs []*Run, flag string) (d Difference, differs bool) {
	d.Flag = flag
	seen := map[string]bool{}
	for _, r := range runs {
		value, given := r.Flags[flag]
		switch {
		case r.Flags == nil:
			d.Values = append(d.Values, notKnown)
			continue
		case !given:
			value = notGiven
		}
		seen[value] = true
		d.Values = append(d.Values, value)
	}
	return d, len(seen) > 1
}

// Summary is a run in a line; nan: not known.
type Summary struct {
	Steps, Torn, Replaced, Skipped, Restarts int
	Tokens                                   int64
	Loss, Validation, Best                   report.Number // of the last step, the last and the best evaluation
	TokensPerSecond, MFU                     report.Number // medians
	Hours                                    float64
}

func summarize(r *Run) Summary {
	s := Summary{Torn: r.Torn, Replaced: r.Replaced, Restarts: len(r.Restarts), Loss: unknown, Validation: unknown, Best: unknown}
	if n := len(r.Steps); n > 0 {
		last := &r.Steps[n-1]
		s.Steps, s.Tokens, s.Loss = last.Iteration, last.ConsumedTokens, loss(last)
		s.Hours = last.Time.Sub(r.Steps[0].Time).Hours()
	}
	for _, e := range r.of(report.Validation) {
		if l := loss(&e); !math.IsNaN(float64(l)) {
			s.Validation = l
			if !(s.Best <= l) {
				s.Best = l
			}
		}
	}
	for _, e := range r.Steps {
		if e.Skipped {
			s.Skipped++
		}
	}
	s.TokensPerSecond = median(r.Steps, func(t *report.Trained) report.Number { return t.TokensPerSecond })
	s.MFU = median(r.Steps, func(t *report.Trained) report.Number { return known(t.MFU) })
	return s
}

func median(steps []report.Entry, of func(*report.Trained) report.Number) report.Number {
	var values []report.Number
	for _, e := range steps {
		if n := of(e.Trained); !math.IsNaN(float64(n)) {
			values = append(values, n)
		}
	}
	if len(values) == 0 {
		return unknown
	}
	slices.SortFunc(values, cmp.Compare)
	return values[len(values)/2]
}
