package dashboard

import (
	"maps"
	"math"
	"slices"
	"strconv"

	"monotron/megatron/telemetry"
)

// Difference is a flag that runs were given with other values.
type Difference struct {
	Flag   string   `json:"flag"`
	Values []string `json:"values"` // of each run
	Where  bool     `json:"where"`  // it says where a run is kept or shown, and nothing about what it learns
}

// storageFlags say where a run is kept or shown; they differ between any two runs.
var storageFlags = []string{"alert-command", "dashboard-addr", "load", "log-jsonl", "metrics-addr", "mlflow-experiment", "mlflow-tracking-uri", "offload-folder", "otlp-endpoint", "profile",
	"run-folder", "run-name", "run-notes", "save", "tensorboard-dir"}

// What stands for a value that is not there.
const (
	notGiven = "(not given)"
	notKnown = "(not known)"
)

// Differences lists the flags in which runs whose flags are known differ, storageFlags last.
func Differences(runs []*Run) []Difference {
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
	slices.SortStableFunc(list, func(a, b Difference) int {
		switch {
		case a.Where == b.Where:
			return 0
		case a.Where:
			return 1
		}
		return -1
	})
	return list
}

func difference(runs []*Run, flag string) (d Difference, differs bool) {
	d.Flag, d.Where = flag, slices.Contains(storageFlags, flag)
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
	Step       int              `json:"step"`
	TrainIters int              `json:"train_iters"` // 0: not known
	Tokens     int64            `json:"tokens"`
	Loss       telemetry.Number `json:"loss"` // of the last step, the last and the best evaluation
	Validation telemetry.Number `json:"validation"`
	Best       telemetry.Number `json:"best"`
	BestStep   int              `json:"best_step"`
	Bits       telemetry.Number `json:"bits_per_byte"` // of the last evaluation

	TokensPerSecond telemetry.Number `json:"tokens_per_second"` // medians of the last steps
	MFU             telemetry.Number `json:"mfu"`
	Clipped         telemetry.Number `json:"clipped"` // share of the last steps, and the norm from which on they are
	ClipAt          telemetry.Number `json:"clip_at"`

	Hours    telemetry.Number `json:"hours"`        // from the first step to the last
	Left     telemetry.Number `json:"left_seconds"` // until the last of TrainIters, at the pace of the last steps
	Cost     telemetry.Number `json:"cost"`         // so far, and of the complete run
	FullCost telemetry.Number `json:"whole_cost"`

	Skipped  int `json:"skipped"`
	Restarts int `json:"restarts"`
	Torn     int `json:"torn"`
	Replaced int `json:"replaced"`
}

// lastSteps is the number of steps that medians cover; it bounds the time of reading a long run.
const lastSteps = 1000

// Summary is the run as it is.
func (r *Run) Summary() Summary {
	s := Summary{Torn: r.Torn, Replaced: r.Replaced, Restarts: len(r.Restarts), TrainIters: r.latest.TrainIters,
		Validation: unknown, Best: unknown, Bits: unknown, TokensPerSecond: unknown, MFU: unknown, Hours: unknown, Left: unknown, Cost: unknown, FullCost: unknown, Clipped: unknown, ClipAt: unknown}
	s.Loss = telemetry.Number(r.Steps.Last("loss"))
	n := r.Steps.Len()
	if n == 0 {
		return s
	}
	s.Step, s.Tokens = int(r.Steps.Last("iteration")), int64(r.Steps.Last("tokens"))
	time := r.Steps.Of("time")
	s.Hours = telemetry.Number((time[n-1] - time[0]) / 3600)
	s.pace(r)
	s.evaluated(r.Evaluations[telemetry.Validation])
	for _, skipped := range r.Steps.Of("skipped") {
		s.Skipped += int(skipped)
	}
	s.TokensPerSecond, s.MFU = median(r.recent("tokens_per_second")), median(r.recent("mfu"))
	s.clipping(r)
	return s
}

// evaluated fills the last and the best of the evaluations.
func (s *Summary) evaluated(t Table) {
	if t.Len() == 0 {
		return
	}
	for i, loss := range t.Of("loss") {
		if math.IsNaN(loss) {
			continue
		}
		s.Validation = telemetry.Number(loss)
		if !(s.Best <= s.Validation) {
			s.Best, s.BestStep = s.Validation, int(t.Of("iteration")[i])
		}
	}
	if bits := finite(t.Of("bits_per_byte")); len(bits) > 0 {
		s.Bits = telemetry.Number(bits[len(bits)-1])
	}
}

func finite(values []float64) (known []float64) {
	for _, v := range values {
		if !math.IsNaN(v) {
			known = append(known, v)
		}
	}
	return known
}

// recent are a field's known values of the last steps.
func (r *Run) recent(name string) []float64 {
	values := r.Steps.Of(name)
	return finite(values[max(0, len(values)-lastSteps):])
}

// pace fills what is left to do, and what it costs.
func (s *Summary) pace(r *Run) {
	time, steps := r.Steps.Of("time"), r.Steps.Of("iteration")
	last := len(time) - 1
	from := max(0, last-lastSteps/2)
	if s.TrainIters > 0 && steps[last] > steps[from] {
		each := (time[last] - time[from]) / (steps[last] - steps[from])
		s.Left = telemetry.Number(each * max(0, float64(s.TrainIters)-steps[last]))
	}
	if price := r.source.Price; price > 0 {
		s.Cost = telemetry.Number(price) * s.Hours
		s.FullCost = s.Cost + telemetry.Number(price)*s.Left/3600
	}
}

// clipping fills the share of steps whose gradient was clipped.
func (s *Summary) clipping(r *Run) {
	if r.Flags == nil {
		return
	}
	at := 1.0 // Megatron's default
	if text, given := r.Flags["clip-grad"]; given {
		at, _ = strconv.ParseFloat(text, 64) // 0 (no clipping) where text is not a number
	}
	norms, over := r.recent("grad_norm"), 0
	if at <= 0 || len(norms) == 0 {
		return
	}
	for _, n := range norms {
		if n > at {
			over++
		}
	}
	s.Clipped, s.ClipAt = telemetry.Number(float64(over)/float64(len(norms))), telemetry.Number(at)
}

func median(values []float64) telemetry.Number {
	if len(values) == 0 {
		return unknown
	}
	return telemetry.Number(slices.Sorted(slices.Values(values))[len(values)/2])
}
