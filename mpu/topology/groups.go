package topology

import (
	"fmt"
	"slices"
)

// Kind names a family of groups. Every rank is in one group of each kind, but
// for the embedding kinds, which only the stages at the ends are in.
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
)

// Kinds lists every kind.
func Kinds() []Kind {
	return []Kind{TP, CP, DP, PP, DPCP, TPCP, TPDP, TPDPCP, Model, EP, ExpertTP, ExpertDP, TPEP, TPEPPP, All, Embedding, PositionEmbedding}
}

// Group lists the ranks of the group of this kind that rank is in, ascending;
// nil where it is in none.
func (s Sizes) Group(kind Kind, rank int) []int {
	switch kind {
	case All:
		return s.dense().along(rank, tp, cp, dp, pp)
	case Embedding:
		return s.ends(rank, 0, s.PP-1)
	case PositionEmbedding:
		return s.ends(rank, 0)
	}
	if free, ok := denseAxes[kind]; ok {
		return s.dense().along(rank, free...)
	}
	if free, ok := expertAxes[kind]; ok {
		return s.experts().along(rank, free...)
	}
	panic(fmt.Sprintf("topology: no groups of kind %q", kind))
}

var denseAxes = map[Kind][]axis{
	TP: {tp}, CP: {cp}, DP: {dp}, PP: {pp}, DPCP: {dp, cp}, TPCP: {tp, cp}, TPDP: {tp, dp}, TPDPCP: {tp, dp, cp}, Model: {tp, pp},
}

var expertAxes = map[Kind][]axis{
	EP: {ep}, ExpertTP: {tp}, ExpertDP: {dp}, TPEP: {tp, ep}, TPEPPP: {tp, ep, pp},
}

// ends keeps the given stages of rank's pipeline, each once; nil when rank is none of them.
func (s Sizes) ends(rank int, stages ...int) []int {
	line := s.Group(PP, rank)
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

// Groups lists all groups of a kind, in the order of their first ranks.
func (s Sizes) Groups(kind Kind) [][]int {
	var all [][]int
	for rank := range s.World() {
		if g := s.Group(kind, rank); len(g) > 0 && g[0] == rank {
			all = append(all, g)
		}
	}
	return all
}

// Instances cuts the ranks that sum rank's dense gradients, DPCP, for n copies of
// a sharded optimizer state (--num-distributed-optimizer-instances, a divisor of
// DP·CP): shard are the ranks that share rank's copy, neighbours in DPCP, and
// across those with the same part of each copy.
func (s Sizes) Instances(n, rank int) (shard, across []int) {
	all := s.Group(DPCP, rank)
	each, at := len(all)/n, slices.Index(all, rank)
	for i := range n {
		across = append(across, all[i*each+at%each])
	}
	from := at / each * each
	return all[from : from+each], across
}
