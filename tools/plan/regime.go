package plan

import (
	"math"
	"slices"
	"strconv"

	"monotron/megatron/plan"
)

// regime is what rows of one kind have in common.
type regime struct {
	Name        string         `json:"regime"`
	Constants   plan.Constants `json:"constants"`
	Fitted      int            `json:"fitted_rows"`
	Judged      int            `json:"judged_rows"`
	Mean        float64        `json:"mean_error"`  // of the judged rows
	Worst       float64        `json:"worst_error"` // of them
	Rank        float64        `json:"rank_correlation"`
	MemoryRows  int            `json:"memory_rows"`
	MemoryMean  float64        `json:"memory_mean_error"` // of rows with max_memory_gb
	MemoryWorst float64        `json:"memory_worst_error"`
	Lost        int            `json:"oom_rows"`
	LostSeen    int            `json:"oom_rows_predicted"` // not to fit, or within 5 percent of it

	fitted map[*layout]bool
}

// fit finds each regime's constants.
func (l *layouts) fit(column string) map[string]*regime {
	all := map[string]*regime{}
	for _, r := range l.rows {
		if all[r.regime] == nil {
			all[r.regime] = &regime{Name: r.regime, Constants: l.machine.ConstantsOf(r.regime), fitted: map[*layout]bool{}}
		}
	}
	if column == "" {
		return all
	}
	for name, g := range all {
		var samples []plan.Sample
		n := 0
		for _, r := range l.rows {
			if r.regime != name || r.problem != nil || r.measured == 0 {
				continue
			}
			if n++; n%2 == 1 {
				samples = append(samples, plan.Sample{Clock: r.clock, Seconds: r.measured})
				g.fitted[r] = true
			}
		}
		if g.Fitted = len(samples); g.Fitted >= 3 {
			if k, err := plan.Fit(samples); err == nil { // else Run reports the row
				g.Constants = k
			}
		}
	}
	return all
}

// judge holds predictions against the rows that were not fitted.
func (l *layouts) judge(all map[string]*regime) {
	for name, g := range all {
		l.judgeMemory(g)
		var said, was []float64
		for _, r := range l.rows {
			if r.regime != name || r.seconds == nil || r.measured == 0 {
				continue
			}
			said, was = append(said, r.seconds.Step), append(was, r.measured)
			if !g.fitted[r] {
				off := math.Abs(r.seconds.Step/r.measured - 1)
				g.Judged, g.Mean, g.Worst = g.Judged+1, g.Mean+off, max(g.Worst, off)
			}
		}
		if g.Judged > 0 {
			g.Mean /= float64(g.Judged)
		}
		if g.Rank = plan.RankCorrelation(said, was); math.IsNaN(g.Rank) {
			g.Rank = 0
		}
	}
}

// judgeMemory holds memory against the column max_memory_gb, a number or OOM.
func (l *layouts) judgeMemory(g *regime) {
	for _, r := range l.rows {
		text := r.cells["max_memory_gb"]
		if r.regime != g.Name || r.problem != nil || text == "" {
			continue
		}
		if text == "OOM" {
			if g.Lost++; float64(r.memory) > 0.95*float64(l.machine.Memory) {
				g.LostSeen++
			}
			continue
		}
		if was, err := strconv.ParseFloat(text, 64); err == nil && was > 0 {
			off := math.Abs(float64(r.memory)/(1<<30)/was - 1)
			g.MemoryRows, g.MemoryMean, g.MemoryWorst = g.MemoryRows+1, g.MemoryMean+off, max(g.MemoryWorst, off)
		}
	}
	g.MemoryMean /= float64(max(1, g.MemoryRows))
}

func sorted(regimes map[string]*regime) (names []string) {
	for name := range regimes {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
