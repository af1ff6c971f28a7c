package spec

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
	SharedFFN     int    // intermediate size of the shared expert; 0: none
	SharedGate    bool   // the shared expert's output is multiplied by sigmoid(gate*x)
	Layers        []bool // [NumLayers], true where the MLP is a mixture

	TopK           int
	ScoreFunction  string
	PreSoftmax     bool    // softmax over all experts first, then the choice; not renormalised
	ScalingFactor  float64 // weights are multiplied by it; 0: not
	NumGroups      int     // 0: no groups
	GroupTopK      int
	RouterDtype    string // "", fp32, fp64
	ProbsOnInput   bool   // weights multiply what goes into an expert (--moe-apply-probs-on-input)
	ExpertBias     bool
	BiasUpdateRate float64

	Balancing    []string
	AuxLossCoeff []float64 // one per entry of Balancing
	ZLossCoeff   float64
	JitterEps    float64

	Dispatcher     string  // allgather, alltoall
	ForceBalance   bool    // choices are random: for benchmarks alone
	CapacityFactor float64 // 0: dropless
	PadToCapacity  bool
	DropPolicy     string
}

// MixtureAt tells whether layer (0-based, global) is a mixture of experts.
func (m *Model) MixtureAt(layer int) bool {
	return m.Experts != nil && layer < len(m.Experts.Layers) && m.Experts.Layers[layer]
}
