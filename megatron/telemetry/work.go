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

// Scores say how fast ranks do their own work: 1 is as fast as the fastest, 0.5 takes twice as
// long.
type Scores struct {
	Others []float64 // by rank: against the fastest rank of the same kind
	Past   []float64 // by rank: against the fastest that it was itself in this run
}

// Scorer makes Scores of the ranks' work from one log line to the next.
type Scorer struct{ best []float64 }

// Score takes the seconds of ranks, and their kinds, whose ranks do the same; nil where there is
// nothing to compare.
func (s *Scorer) Score(seconds []float64, kinds []int) *Scores {
	if len(seconds) < 2 {
		return nil
	}
	if len(s.best) != len(seconds) {
		s.best = slices.Clone(seconds)
	}
	fastest := map[int]float64{}
	for rank, own := range seconds {
		s.best[rank] = min(s.best[rank], own)
		if least, known := fastest[kinds[rank]]; !known || own < least {
			fastest[kinds[rank]] = own
		}
	}
	out := &Scores{}
	for rank, own := range seconds {
		out.Others, out.Past = append(out.Others, ratio(fastest[kinds[rank]], own)), append(out.Past, ratio(s.best[rank], own))
	}
	return out
}

// ratio is least / own; a rank without any work is as fast as can be.
func ratio(least, own float64) float64 {
	if own <= 0 {
		return 1
	}
	return least / own
}

// lowest is the rank with the lowest score.
func lowest(scores []float64) (rank int, score float64) {
	for r := range scores {
		if scores[r] < scores[rank] {
			rank = r
		}
	}
	return rank, scores[rank]
}
