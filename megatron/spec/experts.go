package spec

import (
	"cmp"
	"math"

	"monotron/mpu/topology"
)

// Router score functions (--moe-router-score-function).
const (
	ScoreSoftmax      = "softmax"
	ScoreSigmoid      = "sigmoid"
	ScoreSqrtSoftplus = "sqrtsoftplus"
)

// Kinds of balancing (--moe-router-load-balancing-type).
const (
	AuxLoss       = "aux_loss"        // over a micro-batch
	SeqAuxLoss    = "seq_aux_loss"    // over each sample
	GlobalAuxLoss = "global_aux_loss" // over the batch so far
	Sinkhorn      = "sinkhorn"
	Quantiles     = "quantile_balancing"
	NoBalancing   = "none"
)

// Which choices an expert that is full drops (--moe-token-drop-policy).
const (
	DropByWeight   = "probs"    // the smallest weights
	DropByPosition = "position" // the last
)

// Dispatchers (--moe-token-dispatcher-type).
const (
	AllGatherDispatcher = "allgather"
	AllToAllDispatcher  = "alltoall"
)

// Experts is the shape of mixture-of-experts layers. A dense model has none
// (Model.Experts is nil).
type Experts struct {
	Num           int
	FFNHiddenSize int    // of one expert
	LatentSize    int    // width of inputs and outputs of experts, between two projections that all share; 0: the hidden size
	SharedFFN     int    // intermediate size of the shared expert; 0: none
	SharedGate    bool   // the shared expert's output is multiplied by sigmoid(gate*x)
	SharedOverlap bool   // the shared expert computes while tokens travel (--moe-shared-expert-overlap)
	Layers        []bool // [NumLayers], true where the MLP is a mixture

	TopK           int
	ScoreFunction  string
	PreSoftmax     bool    // softmax over all experts first, then the choice; not renormalised
	ScalingFactor  float64 // weights are multiplied by it; 0: not
	NumGroups      int     // 0: no groups
	GroupTopK      int
	GroupBest      int    // experts whose scores add up to their group's; 0: TopK/GroupTopK, as Megatron has it
	RouterDtype    string // "", fp32, fp64
	ProbsOnInput   bool   // weights multiply what goes into an expert (--moe-apply-probs-on-input)
	ExpertBias     bool
	BiasUpdateRate float64

	Balancing    []string
	AuxLossCoeff []float64 // one per entry of Balancing
	ZLossCoeff   float64
	GlobalExact  bool    // the global loss is as strong as on one rank (--moe-global-aux-exact)
	QuantileEMA  float64 // share of the quantiles so far in new ones
	JitterEps    float64 // the router's input is multiplied by 1 ± it

	Dispatcher     string  // allgather, alltoall
	ForceBalance   bool    // choices are random: for benchmarks alone
	CapacityFactor float64 // 0: dropless
	PadToCapacity  bool
	DropPolicy     string
}

// ExpertWidth is the width of inputs and outputs of experts.
func (m *Model) ExpertWidth() int { return cmp.Or(m.Experts.LatentSize, m.HiddenSize) }

// expertParameters counts one expert's.
func (m *Model) expertParameters() int64 {
	of := *m
	of.HiddenSize = m.ExpertWidth()
	return of.mlpParameters(m.Experts.FFNHiddenSize)
}

// ExpertParameters counts a layer's that are its experts' own; 0 where it has none.
func (m *Model) ExpertParameters(layer int) int64 {
	if !m.MixtureAt(layer) {
		return 0
	}
	return int64(m.Experts.Num) * m.expertParameters()
}

// RankParameters counts what one of ranks that share the experts holds, and else has the
// complete model.
func (m *Model) RankParameters(ranks int) int64 {
	n := m.Parameters()
	for layer := range m.AllLayers() {
		if m.MixtureAt(layer) {
			n -= int64(m.Experts.Num-m.Experts.Num/ranks) * m.expertParameters()
		}
	}
	return n
}

// ActiveParameters counts those that one token meets.
func (m *Model) ActiveParameters() int64 {
	n := m.Parameters()
	for layer := range m.AllLayers() {
		if m.MixtureAt(layer) {
			n -= int64(m.Experts.Num-m.Experts.TopK) * m.expertParameters()
		}
	}
	return n
}

// MixtureAt reports whether layer (0-based, global) is a mixture of experts.
func (m *Model) MixtureAt(layer int) bool {
	layer = m.decoderLayer(layer)
	return m.Experts != nil && layer < len(m.Experts.Layers) && m.Experts.Layers[layer]
}

// Slots are how often the tokens of a micro-batch choose the experts of one rank, in a layer:
// where they choose evenly, and at most. tokens: those of a rank outside the experts.
func (m *Model) Slots(tokens int, s topology.Sizes) (even, most int64) {
	e, parts := m.Experts, int64(s.ExpertTP())
	here, sources := int64(e.Num/s.EP), parts*int64(s.EP)
	even = int64(tokens*e.TopK) * parts
	most = int64(tokens) * sources * min(int64(e.TopK), here)
	if e.CapacityFactor > 0 {
		most = min(most, sources*here*e.Capacity(int64(tokens)))
	}
	return min(even, most), most
}

// Choosable reports whether a token finds TopK experts: among all, and where there are groups, as
// many in each that it uses.
func (e *Experts) Choosable() bool {
	if e.TopK < 1 || e.TopK > e.Num {
		return false
	}
	if e.NumGroups == 0 && e.GroupTopK == 0 {
		return true
	}
	if e.GroupTopK < 1 || e.GroupTopK > e.NumGroups || e.Num%e.NumGroups != 0 || e.GroupBest == 0 && e.TopK%e.GroupTopK != 0 {
		return false
	}
	size := e.Num / e.NumGroups
	return e.TopK <= size*e.GroupTopK && e.BestOfGroup() <= size
}

// BestOfGroup is how many experts of a group make its score; 0: without groups.
func (e *Experts) BestOfGroup() int {
	if e.GroupBest > 0 || e.GroupTopK == 0 {
		return e.GroupBest
	}
	return e.TopK / e.GroupTopK
}

// Capacity is how many of a rank's tokens an expert takes, where it is limited.
func (e *Experts) Capacity(tokens int64) int64 {
	return int64(math.Ceil(float64(tokens*int64(e.TopK)) / float64(e.Num) * e.CapacityFactor))
}

// SlotBytes is what a layer keeps for its backward of one choice of an expert of which a
// rank has one of so many parts; size: bytes of a value.
func (m *Model) SlotBytes(parts int, size int64) int64 {
	h, ffn, matrices := int64(m.HiddenSize), int64(m.Experts.FFNHiddenSize/parts), int64(1)
	if m.Gated() {
		matrices = 2
	}
	values := h + matrices*ffn + ffn // what goes in, into the activation and out of it
	if m.Experts.ProbsOnInput || m.LinearBias {
		values += h // with its weight, or fc2's before it
	}
	return values*size + 5*4 // its weight, its token and where that finds it, the way back and forth
}
