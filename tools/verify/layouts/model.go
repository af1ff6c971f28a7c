package layouts

import (
	"slices"
	"strings"

	"monotron/internal/exitcode"
	"monotron/megatron/arguments"
	"monotron/megatron/config"
	"monotron/megatron/optimizer"
	"monotron/megatron/spec"
	"monotron/megatron/training"
)

// small are the sizes of the model that is trained: enough layers and heads to
// cut in every way, a vocabulary that no number of ranks divides.
const small = "--num-layers 8 --hidden-size 32 --num-attention-heads 8 --seq-length 16 --max-position-embeddings 16 " +
	"--tokenizer-type NullTokenizer --vocab-size 131 --make-vocab-size-divisible-by 1 --micro-batch-size 1 --global-batch-size 24 " +
	"--train-iters 10 --initial-loss-scale 1024 --lr 1e-3 --lr-decay-style constant --weight-decay 0.1 --clip-grad 1.0 --seed 1234 --adam-eps " + epsilon

// blocks are additional sizes with --optimizer adamw_8bit and with --fp8-format whose scales are those of blocks, smallBlocks
// of --fp8-recipe mxfp8: two ranks can share every weight without cutting a block.
const (
	blocks      = " --hidden-size 512 --ffn-hidden-size 512"
	smallBlocks = " --hidden-size 128 --ffn-hidden-size 128"
)

// sizes are those of the model that is trained, with the optimizer and the recipe that flags name.
func sizes(flags []string) string {
	named := func(end string) bool {
		return slices.ContainsFunc(flags, func(flag string) bool { return strings.HasSuffix(flag, end) })
	}
	fp8 := slices.ContainsFunc(flags, func(flag string) bool { return strings.HasPrefix(flag, "--fp8-format") })
	switch {
	case named(optimizer.Adam8), fp8 && named("blockwise"):
		return small + blocks
	case fp8 && named("mxfp8"):
		return small + smallBlocks
	}
	return small
}

// precise is the precision of Muon's iteration in every trial: in bf16 it rounds what layouts
// have different by 1e-7 to neighbours that are 4e-3 apart.
const precise = "high"

// epsilon of AdamW in every trial. An element's first move is lr·g/(|g|+ε): with Megatron's ε of
// 1e-8 that is lr·sign(g), and the rounding of an element whose gradient is nearly zero (a column
// of an expert that got few tokens) moves its weight by 2·lr. Gradients clipped to norm 1 over 10⁵
// elements are 3e-3 by root mean square; with an ε of that size no rounding grows, and moves are
// still large enough for one that is left out to show.
const epsilon = "1e-3"

// Model is a model under test with how it is trained.
type Model struct {
	Name   string
	Config config.Run
}

// Names of the shapes.
func Names() (all []string) {
	for _, s := range Shapes {
		all = append(all, s.Name)
	}
	return all
}

// Builtin is one of Shapes; more flags, such as --bf16, are appended. With --layout-invariant a mixture
// balances samples, where it balanced micro-batches.
func Builtin(name string, more ...string) (Model, error) {
	for _, s := range Shapes {
		if s.Name == name {
			flags := append(strings.Fields(sizes(more)+" "+s.Flags), more...)
			if strings.Contains(s.Flags, "--moe-aux-loss-coeff") && !strings.Contains(s.Flags, "--moe-router-load-balancing-type") && slices.Contains(more, "--layout-invariant") {
				flags = append(flags, "--moe-router-load-balancing-type", "seq_aux_loss")
			}
			return parse(name, flags)
		}
	}
	return Model{}, exitcode.Errorf(exitcode.Usage, "--shape must be from the list %s, not %s", strings.Join(Names(), ", "), name)
}

// FromFlags is the model of a training command line, shrunk unless full is set:
// the same architecture with the sizes above. AdamW's ε is this package's in any case, and
// a loss scale starts low: steps that are skipped until it fits prove nothing.
func FromFlags(flags []string, full bool) (Model, error) {
	m, err := parse("the model given", flags)
	if err != nil {
		return m, err
	}
	reference, err := parse("", strings.Fields(sizes(flags)))
	if err != nil {
		return m, err
	}
	m.Config.Optimizer.AdamEps = reference.Config.Optimizer.AdamEps
	m.Config.Optimizer.InitialLossScale = min(m.Config.Optimizer.InitialLossScale, reference.Config.Optimizer.InitialLossScale)
	if !full {
		shrink(&m.Config, &reference.Config)
	}
	return m, m.adapt()
}

// reference is what m is compared with where dp ranks share its batch: the model on one rank.
func (m Model) reference(dp int) (Model, Variant) {
	one := One(&m.Config)
	at := globalLoss(&m.Config)
	if at < 0 {
		return m, one
	}
	one.MicroBatch *= dp // the global loss counts what all ranks have done, a micro-batch each at a time
	if e := *m.Config.Model.Experts; !e.GlobalExact {
		e.AuxLossCoeff = slices.Clone(e.AuxLossCoeff)
		e.AuxLossCoeff[at] /= float64(dp) // as weak as Megatron has it
		m.Config.Model.Experts = &e
	}
	return m, one
}

// globalLoss is where among a model's balancing losses the global one is; −1: it has none.
func globalLoss(c *config.Run) int {
	if c.Model.Experts == nil {
		return -1
	}
	return slices.Index(c.Model.Experts.Balancing, spec.GlobalAuxLoss)
}

func parse(name string, flags []string) (Model, error) {
	c, _, err := arguments.ParseWith(arguments.Options{Partial: true, Layouts: true, Experts: true, ModelOnly: true}, flags)
	if err != nil {
		return Model{}, err
	}
	switch o := &c.Optimizer; {
	case c.Leaves > 0: // no layout rounds otherwise
	case o.Kind == optimizer.Lion || o.Muon.Vectors == optimizer.Lion && o.Matrices():
		return Model{}, exitcode.Errorf(exitcode.Usage, "--optimizer lion steps by the sign of a gradient, and rounding decides this sign if the gradient is nearly 0; verify the model with --optimizer adam, or compare bits with --bits")
	case o.Kind == optimizer.AdaptiveMuon && o.Muon.Moment2 == optimizer.MomentElements:
		return Model{}, exitcode.Errorf(exitcode.Usage, "--adaptive-muon-moment2-method adamuon divides each element of a step by its own magnitude, so that rounding decides elements that are nearly 0; "+
			"verify the model with normuon, or compare bits with --bits")
	case c.FP8.Format != "":
		return Model{}, exitcode.Errorf(exitcode.Usage, "--fp8-format rounds to 8 bits, so the smallest difference before rounding can become a large one; compare bits with --bits")
	case o.Kind == optimizer.Adam8:
		return Model{}, exitcode.Errorf(exitcode.Usage, "--optimizer %s rounds moments to 8 bits, so the smallest difference before rounding can become a large one; compare bits with --bits", o.Kind)
	}
	if c.Tuning.Samples() {
		return Model{}, exitcode.Errorf(exitcode.Usage, "--tuning grpo learns from sampled answers, which rounding can change; verify the model with --tuning sft or dpo")
	}
	if !slices.ContainsFunc(flags, func(f string) bool { return strings.HasPrefix(f, "--sequence-leaves") }) {
		c.SequenceLeaves = c.Leaves // so that context parallelism can divide short samples
	}
	c.Optimizer.Muon.Precision = precise
	c.Layout = config.Layout{VP: 1, MicroBatchGroup: c.Layout.MicroBatchGroup}
	c.Checkpoint, c.Log = config.Checkpoint{}, config.Log{}
	c.LossMeanPerContextRank = false // with it the loss depends on the layout
	m := Model{Name: name, Config: c}
	return m, m.adapt()
}

// adapt gives the model its adapters.
func (m *Model) adapt() error {
	if m.Config.Model.Adapters = nil; !m.Config.Adapter.Given() || m.Config.Model.NumLayers == 0 {
		return nil
	}
	if err := m.Config.SetVocab(vocabulary(&m.Config)); err != nil {
		return err
	}
	return training.Adapt(&m.Config)
}

// shrink gives c the sizes of s and keeps everything that is not a size.
func shrink(c, s *config.Run) {
	m := &c.Model
	ratio := max(1, m.NumAttentionHeads/max(1, m.NumQueryGroups))
	gated := m.Gated()
	if m.NumLayers > 0 {
		*m = m.WithLayers(inTurn(m.NumLayers, s.Model.NumLayers))
	}
	wide := m.KVChannels*m.NumAttentionHeads != m.HiddenSize
	m.NumLayers, m.HiddenSize, m.NumAttentionHeads, m.MaxPositions = s.Model.NumLayers, s.Model.HiddenSize, s.Model.NumAttentionHeads, s.Model.MaxPositions
	m.NumQueryGroups = max(1, m.NumAttentionHeads/ratio)
	if m.RopeRule == "" && m.WindowRope == "" { // rules may have a number for each channel
		m.KVChannels = m.HiddenSize / m.NumAttentionHeads
		if wide {
			m.KVChannels += 2
		}
	}
	m.FFNHiddenSize = 4 * m.HiddenSize
	if gated {
		m.FFNHiddenSize = 2 * m.HiddenSize
	}
	if m.WindowLeft > 0 {
		m.WindowLeft = min(m.WindowLeft, 4)
	}
	if m.Chunk > 0 {
		m.Chunk, m.QueryGrowthFrom = min(m.Chunk, 5), min(m.QueryGrowthFrom, 4)
	}
	if m.Delta != nil {
		m.Delta = shrinkDelta(m)
	}
	if m.Full != nil {
		m.Full = &spec.FullAttention{KVChannels: m.KVChannels + 4, NumQueryGroups: max(1, m.NumQueryGroups/2)}
	}
	if m.Mamba != nil {
		m.Mamba = shrinkMamba(m)
	}
	c.Model.VocabSize, c.PaddedVocab, c.VocabDivisor = 0, 0, 1
	c.Tokenizer = s.Tokenizer
	c.SeqLength, c.MicroBatchSize, c.GlobalBatchSize = s.SeqLength, s.MicroBatchSize, s.GlobalBatchSize
	c.RampupBatchSize, c.StepBatchSizeSchedule, c.LeafSamples = nil, "", s.GlobalBatchSize
	c.TrainIters, c.TrainSamples = s.TrainIters, 0
	c.Optimizer.LR, c.Optimizer.MinLR, c.Optimizer.DecayStyle = s.Optimizer.LR, 0, s.Optimizer.DecayStyle
	if m.Position == spec.PositionRope && m.KVChannels%2 != 0 {
		m.KVChannels++
	}
	if m.Latent == nil && m.RotaryPercent < 1 && m.RopeRule == "" && m.RotaryDims()%2 != 0 { // channels rotate in pairs
		m.RotaryPercent = 2 / float64(m.KVChannels)
	}
	for _, axis := range c.LeafAxes() {
		for c.Leaves > 1 && axis.Size%c.Leaves != 0 {
			c.Leaves /= 2 // as many as the smaller axes have
		}
	}
	c.SequenceLeaves = min(c.SequenceLeaves, c.Leaves)
}

// shrinkDelta has as many key heads as m has heads, and at most two value heads for each.
func shrinkDelta(m *spec.Model) *spec.Delta {
	d := *m.Delta
	ratio := min(2, max(1, d.ValueHeads/d.KeyHeads))
	d.KeyHeads, d.ValueHeads, d.KeyDim, d.ValueDim = m.NumAttentionHeads, m.NumAttentionHeads*ratio, 4, 6
	return &d
}

// shrinkMamba has as many heads as m, of one group of B and C, or of a group for every two.
func shrinkMamba(m *spec.Model) *spec.Mamba {
	s := *m.Mamba
	s.Heads, s.HeadDim, s.StateDim = m.NumAttentionHeads, 4, 6
	if s.Groups > 1 {
		s.Groups = max(1, s.Heads/2)
	}
	return &s
}

// inTurn are n layers: the model's so many, in turn.
func inTurn(layers, n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i % layers
	}
	return all
}
