// Package topology says which rank does what: rank numbers, coordinates in the
// parallel layout, and the rank list of every group. Arithmetic only.
//
// Ranks are numbered as Megatron-LM numbers them (megatron/core/parallel_state.py,
// RankGenerator): along tp-cp-ep-dp-pp, the leftmost fastest. Dense layers have no
// ep axis, so rank = t + TP(c + CP(d + DP·p)). Experts live on a grid of their own
// over the same ranks, etp-ep-edp-pp, where EDP = world/(ETP·EP·PP).
package topology

import (
	"errors"
	"fmt"

	"monotron/internal/exitcode"
)

// Sizes of a layout. DP counts the copies of the model that see different
// samples; gradients of dense layers are summed over DP·CP ranks, those of
// experts over EDP.
type Sizes struct {
	TP, CP, DP, PP int
	EP             int  // ranks that share the experts; they are ranks of TP·CP·DP, not more ranks
	ETP            int  // ranks that share one expert; 0: TP
	PPBeforeDP     bool // order tp-cp-ep-pp-dp (--use-tp-pp-dp-mapping)
	QueryGroups    int  // of the model's attention, for QuerySharers; 0: no fewer than TP
	Instances      int  // copies of a sharded optimizer state, a divisor of DP·CP; 0 and 1: one
}

// World is the number of ranks.
func (s Sizes) World() int { return s.TP * s.CP * s.DP * s.PP }

// ExpertTP is the number of ranks that share one expert.
func (s Sizes) ExpertTP() int {
	if s.ETP == 0 {
		return s.TP
	}
	return s.ETP
}

// ExpertDP is the number of copies of each expert.
func (s Sizes) ExpertDP() int { return s.World() / (s.ExpertTP() * s.EP * s.PP) }

// Check names every size that cannot be.
func (s Sizes) Check() error {
	var problems []error
	for _, n := range []struct {
		name string
		size int
	}{{"tensor-parallel", s.TP}, {"context-parallel", s.CP}, {"expert-parallel", s.EP}, {"expert tensor-parallel", s.ExpertTP()}, {"data-parallel", s.DP}, {"pipeline-parallel", s.PP}} {
		if n.size < 1 {
			problems = append(problems, fmt.Errorf("the %s size is %d; it must be at least 1", n.name, n.size))
		}
	}
	if len(problems) == 0 && s.World()%(s.ExpertTP()*s.EP*s.PP) != 0 {
		problems = append(problems, fmt.Errorf("the number of ranks, %d, is not a multiple of expert tensor-parallel size %d x expert-parallel size %d x pipeline-parallel size %d",
			s.World(), s.ExpertTP(), s.EP, s.PP))
	}
	return exitcode.With(exitcode.Usage, errors.Join(problems...))
}

// Coordinates is a rank's coordinates among the dense layers.
type Coordinates struct{ TP, CP, DP, PP int }

// ExpertCoordinates is a rank's coordinates among the experts.
type ExpertCoordinates struct{ TP, EP, DP, PP int }

// At returns the coordinates of a rank.
func (s Sizes) At(rank int) Coordinates {
	c := s.dense().split(rank)
	return Coordinates{TP: c[tp], CP: c[cp], DP: c[dp], PP: c[pp]}
}

// Rank is the rank at coordinates p.
func (s Sizes) Rank(p Coordinates) int {
	return s.dense().join(coords{tp: p.TP, cp: p.CP, dp: p.DP, pp: p.PP})
}

// ExpertAt returns the coordinates of a rank among the experts.
func (s Sizes) ExpertAt(rank int) ExpertCoordinates {
	c := s.experts().split(rank)
	return ExpertCoordinates{TP: c[tp], EP: c[ep], DP: c[dp], PP: c[pp]}
}

// axis is a direction of a grid.
type axis int

const (
	tp axis = iota
	cp
	ep
	dp
	pp
	axes
)

type coords [axes]int

// grid numbers ranks along its axes, the first fastest.
type grid struct {
	order [axes]axis
	size  [axes]int
}

func (s Sizes) dense() grid {
	return grid{s.order(), [axes]int{tp: s.TP, cp: s.CP, ep: 1, dp: s.DP, pp: s.PP}}
}

func (s Sizes) experts() grid {
	return grid{s.order(), [axes]int{tp: s.ExpertTP(), cp: 1, ep: s.EP, dp: s.ExpertDP(), pp: s.PP}}
}

func (s Sizes) order() [axes]axis {
	if s.PPBeforeDP {
		return [axes]axis{tp, cp, ep, pp, dp}
	}
	return [axes]axis{tp, cp, ep, dp, pp}
}

func (g grid) split(rank int) (c coords) {
	for _, a := range g.order {
		c[a] = rank % g.size[a]
		rank /= g.size[a]
	}
	return c
}

func (g grid) join(c coords) (rank int) {
	for i := len(g.order) - 1; i >= 0; i-- {
		a := g.order[i]
		rank = rank*g.size[a] + c[a]
	}
	return rank
}

// along lists, ascending, the ranks that differ from rank on the given axes only.
func (g grid) along(rank int, free ...axis) []int {
	at, varies, apart, n := g.split(rank), [axes]bool{}, [axes]int{}, 1 // apart: ranks that are next to each other along an axis
	for _, a := range g.order {
		apart[a] = n
		n *= g.size[a]
	}
	for _, a := range free {
		varies[a], at[a] = true, 0
	}
	ranks := []int{g.join(at)}
	for i := len(g.order) - 1; i >= 0; i-- { // slowest first, so that the list ascends
		a := g.order[i]
		if !varies[a] {
			continue
		}
		next := make([]int, 0, len(ranks)*g.size[a])
		for _, first := range ranks {
			for k := range g.size[a] {
				next = append(next, first+k*apart[a])
			}
		}
		ranks = next
	}
	return ranks
}
