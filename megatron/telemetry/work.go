package telemetry

import "slices"

// Work is what each rank did itself, in seconds a step; waiting for others does not count.
type Work struct {
	Phases  []string
	Seconds [][]float64 // by rank, then phase; none where there is one rank, or at the first step
}

// Ranks are the seconds of each rank.
func (w *Work) Ranks() []float64 {
	all := make([]float64, len(w.Seconds))
	for rank, row := range w.Seconds {
		for _, seconds := range row {
			all[rank] += seconds
		}
	}
	return all
}

// behind is the phase in which a rank exceeds the median rank most: its seconds, and the
// median's.
func (w *Work) behind(rank int) (phase string, own, median float64) {
	for i, name := range w.Phases {
		column := make([]float64, len(w.Seconds))
		for r, row := range w.Seconds {
			column[r] = row[i]
		}
		slices.Sort(column)
		usual := column[(len(column)-1)/2]
		if mine := w.Seconds[rank][i]; phase == "" || mine-usual > own-median {
			phase, own, median = name, mine, usual
		}
	}
	return phase, own, median
}
