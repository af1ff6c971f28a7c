package topology

import (
	"fmt"
	"slices"
)

// Kind names a family of groups.
type Kind string

const (
	TP       Kind = "tp"        // share each dense layer
	CP       Kind = "cp"        // share each sequence
	DP       Kind = "dp"        // same part of the model, other samples
	PP       Kind = "pp"        // the stages of one copy of the model
	DPCP     Kind = "dp-cp"     // sum gradients of dense layers
	TPCP     Kind = "tp-cp"     // share the tokens of a micro-batch
	TPDP     Kind = "tp-dp"     // with TPDPCP: who counts what experts get
	TPDPCP   Kind = "tp-dp-cp"  // all ranks of a stage
	Model    Kind = "tp-pp"     // one copy of the model: norms are summed over it
	EP       Kind = "ep"        // share the experts
	ExpertTP Kind = "etp"       // share one expert
	ExpertDP Kind = "edp"       // same experts: sum their gradients
	TPEP     Kind = "etp-ep"    // hold all experts of a layer once
	TPEPPP   Kind = "etp-ep-pp" // hold all experts once
	All      Kind = "world"

	Embedding         Kind = "embedding"          // first and last stage: sum a tied table's gradient
	PositionEmbedding Kind = "position-embedding" // first stage

	QuerySharers Kind = "query-sharers" // of TP: share a query group, where there are fewer than ranks
	Shard        Kind = "dp-shard"      // of DPCP: share one of several copies of the optimizer's state
	Across       Kind = "dp-across"     // of DPCP: have the same part of each copy
)

// families has one row a kind: the ranks of the group that a rank is in, ascending;
// nil where it is in none.
var families = []struct {
	kind    Kind
	members func(s Sizes, rank int) []int
}{
	{TP, dense(tp)}, {CP, dense(cp)}, {DP, dense(dp)}, {PP, dense(pp)},
	{DPCP, dense(dp, cp)}, {TPCP, dense(tp, cp)}, {TPDP, dense(tp, dp)}, {TPDPCP, dense(tp, dp, cp)}, {Model, dense(tp, pp)},
	{EP, expert(ep)}, {ExpertTP, expert(tp)}, {ExpertDP, expert(dp)}, {TPEP, expert(tp, ep)}, {TPEPPP, expert(tp, ep, pp)},
	{All, dense(tp, cp, dp, pp)},
	{Embedding, func(s Sizes, rank int) []int { return s.ends(rank, 0, s.PP-1) }},
	{PositionEmbedding, func(s Sizes, rank int) []int { return s.ends(rank, 0) }},
	{QuerySharers, Sizes.querySharers},
	{Shard, Sizes.shard},
	{Across, Sizes.across},
}

// dense are groups along axes of the dense layers, expert those along the experts'.
func dense(free ...axis) func(Sizes, int) []int {
	return func(s Sizes, rank int) []int { return s.dense().along(rank, free...) }
}

func expert(free ...axis) func(Sizes, int) []int {
	return func(s Sizes, rank int) []int { return s.experts().along(rank, free...) }
}

// Kinds lists every kind.
func Kinds() (all []Kind) {
	for _, f := range families {
		all = append(all, f.kind)
	}
	return all
}

// Group lists the ranks of the group of this kind that rank is in, ascending;
// nil where it is in none. Every rank is in one group of each kind, but for the
// embedding kinds, which only the stages at the ends are in, and Shard and Across,
// which are there where Instances are several.
func (s Sizes) Group(kind Kind, rank int) []int {
	for _, f := range families {
		if f.kind == kind {
			return f.members(s, rank)
		}
	}
	panic(fmt.Sprintf("topology: no groups of kind %q", kind))
}

// ends keeps the given stages of rank's pipeline, each once; nil when rank is not one of them.
func (s Sizes) ends(rank int, stages ...int) []int {
	line := s.dense().along(rank, pp)
	var ranks []int
	for _, stage := range stages {
		if r := line[stage]; !slices.Contains(ranks, r) {
			ranks = append(ranks, r)
		}
	}
	if !slices.Contains(ranks, rank) {
		return nil
	}
	return ranks
}

// Groups lists all groups of a kind, in the order of their first ranks. Each is listed by its
// first rank alone, so that the time grows with the ranks.
func (s Sizes) Groups(kind Kind) [][]int {
	var all [][]int
	listed := make([]bool, s.World())
	for rank := range listed {
		if listed[rank] {
			continue
		}
		g := s.Group(kind, rank)
		if len(g) > 0 {
			all = append(all, g)
		}
		for _, member := range g {
			listed[member] = true
		}
	}
	return all
}

// querySharers are neighbours in TP: with fewer query groups than ranks, each has its
// part of the group's query heads.
func (s Sizes) querySharers(rank int) []int {
	line := s.dense().along(rank, tp)
	n := 1
	if s.QueryGroups > 0 {
		n = max(1, len(line)/s.QueryGroups)
	}
	first := slices.Index(line, rank) / n * n
	return line[first : first+n]
}

// shard are the ranks of DPCP, neighbours there, that share rank's copy of the
// optimizer's state; across those with the same part of each copy.
func (s Sizes) shard(rank int) []int {
	each, at := s.instances(rank)
	return s.ofCopies(rank, at-at%max(1, each), 1, each)
}

func (s Sizes) across(rank int) (ranks []int) {
	each, at := s.instances(rank)
	if each == 0 {
		return nil
	}
	return s.ofCopies(rank, at%each, each, s.Instances)
}

// instances are how many ranks of rank's DPCP share a copy (0: there is one copy, which nobody asks for), and rank's
// index among all of DPCP.
func (s Sizes) instances(rank int) (each, at int) {
	if s.Instances <= 1 {
		return 0, 0
	}
	c := s.At(rank)
	return s.CP * s.DP / s.Instances, c.CP + s.CP*c.DP
}

// ofCopies are n ranks of rank's DPCP, from an index there on, so far apart: they are computed one by one, as listing all
// of DPCP for each rank would take the square of the ranks.
func (s Sizes) ofCopies(rank, first, apart, n int) (ranks []int) {
	c := s.At(rank)
	for i := range n {
		at := first + i*apart
		c.CP, c.DP = at%s.CP, at/s.CP
		ranks = append(ranks, s.Rank(c))
	}
	return ranks
}
