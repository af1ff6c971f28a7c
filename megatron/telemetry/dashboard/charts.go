package dashboard

import (
	"math"
	"slices"

	"monotron/megatron/telemetry"
)

// chart is a panel of a picture or a terminal: curves of runs over steps.
type chart struct {
	title  string
	curves []curve
}

// curve is a run's; x rises, y is finite.
type curve struct {
	name       string
	run        int // its colour
	validation bool
	x, y       []float64
}

// smoothing weighs the past in a moving average that starts unbiased, as the page's does.
const smoothing = 0.9

// charts are the panels that have values.
func charts(runs []*Run) (list []chart) {
	// A panel for each field, a curve for each run, and one more for what was evaluated.
	for _, c := range []struct {
		title, field string
		factor       float64
		smooth       bool
	}{
		{"loss, nats a token", "loss", 1, true}, {"gradient norm", "grad_norm", 1, true}, {"learning rate", "learning_rate", 1, false},
		{"reward margin", "rewards_margins", 1, true}, {"reward", "reward", 1, true},
		{"tokens a second", "tokens_per_second", 1, true},
	} {
		panel := chart{title: c.title}
		for i, r := range runs {
			x, y := points(r.Steps, c.field, c.factor)
			if c.smooth {
				y = smooth(y)
			}
			panel.add(curve{name: r.Name, run: i, x: x, y: y})
			if c.field == "loss" || c.field == "rewards_margins" {
				x, y := points(r.Evaluations[telemetry.Validation], c.field, 1)
				panel.add(curve{name: r.Name + " validation", run: i, validation: true, x: x, y: y})
			}
		}
		if len(panel.curves) > 0 {
			list = append(list, panel)
		}
	}
	return list
}

func (c *chart) add(line curve) {
	if len(line.x) > 0 {
		c.curves = append(c.curves, line)
	}
}

// points are a field's known values, and their steps.
func points(t Table, field string, factor float64) (x, y []float64) {
	if t.Len() == 0 {
		return nil, nil
	}
	steps := t.Of("iteration")
	for i, v := range t.Of(field) {
		if drawable(v) {
			x, y = append(x, steps[i]), append(y, factor*v)
		}
	}
	return x, y
}

// drawable leaves out what no f32 is, and nan: the range of a panel's numbers, and what one pixel
// of it stands for, must be numbers too.
func drawable(v float64) bool {
	size := math.Abs(v)
	return v == 0 || size >= math.SmallestNonzeroFloat32 && size <= math.MaxFloat32
}

func smooth(values []float64) []float64 {
	out, sum, weight := make([]float64, len(values)), 0.0, 0.0
	for i, v := range values {
		sum, weight = smoothing*sum+(1-smoothing)*v, smoothing*weight+(1-smoothing)
		out[i] = sum / weight
	}
	return out
}

// bounds of a chart's steps.
func (c *chart) bounds() (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, line := range c.curves {
		low, high = min(low, line.x[0]), max(high, line.x[len(line.x)-1])
	}
	return low, high
}

// resampled reads a curve at n points between two steps; beyond its ends it is nan.
func (c *curve) resampled(low, high float64, n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		x := low + (high-low)*float64(i)/float64(max(1, n-1))
		at, exact := slices.BinarySearch(c.x, x)
		switch {
		case exact:
			out[i] = c.y[at]
		case at == 0 || at == len(c.x):
			out[i] = math.NaN()
		default:
			share := (x - c.x[at-1]) / (c.x[at] - c.x[at-1])
			out[i] = c.y[at-1] + share*(c.y[at]-c.y[at-1])
		}
	}
	return out
}
