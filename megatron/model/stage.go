package model

import (
	"slices"

	"monotron/csrc/device"
	"monotron/csrc/device/activations"
	"monotron/internal/exitcode"
	"monotron/megatron/spec"
	"monotron/mpu"
)

// StageConfig says which part of a model a stage is. It may have no layers, or
// layers alone.
type StageConfig struct {
	Model     *spec.Model
	Layers    []int // global numbers, ascending
	Embedding bool  // the stage starts with the embedding
	Head      bool  // the stage ends with final norm, output layer and loss
	Recompute Recompute
	DType     device.DType // of values

	LogitDivisor float64 // logits are divided by it; 0: they are not
}

// Stage is a contiguous part of a GPT on one rank: one pipeline stage, one chunk
// of several, or the complete model.
type Stage struct {
	config    StageConfig
	m         *spec.Model
	device    *device.Device
	region    mpu.Region
	embedding *embedding // nil: activations come from another stage
	layers    []*layer
	finalNorm *norm // nil: activations go to another stage
	head      *mpu.VocabParallelHead
	output    *mpu.Param  // the head's own table: untied, or a copy of a tied one; nil: the embedding's
	ahead     []*mtpLayer // of multi-token prediction, on the stage of the head
	words     *embedding  // that they read: the stage's own, or a copy of the first stage's; nil: none do
	segments  []segment
	scales    *mpu.Delayed // of 8-bit operands; nil: they do not follow from earlier steps
	uses      units
}

// units are the stage's parameters by who uses them; see mpu.Hooks.
type units struct {
	embedding []*mpu.Param
	layers    [][]*mpu.Param
	tiles     [][]*mpu.Param // of each layer, which come and go by themselves
	head      []*mpu.Param   // with the tables, whosever they are
	headOwn   []*mpu.Param   // without the embedding's
	copied    []*mpu.Param   // of these the embedding's copy, for multi-token prediction
	ahead     [][]*mpu.Param // of each layer of multi-token prediction
}

// NewStage builds the stage's parameters, without memory; see Materialize. A
// layout that cannot be is exitcode.Usage.
func NewStage(d *device.Device, c StageConfig, p Parallel) (*Stage, error) {
	// Reject a model that this layout, stage or device cannot run.
	recomputed, err := c.Recompute.recomputed()
	if err != nil {
		return nil, err
	}
	if err := p.check(&c); err != nil {
		return nil, err
	}
	if err := c.checkOneStage(); err != nil {
		return nil, err
	}
	if err := lacks(d, c.Model); err != nil {
		return nil, err
	}
	if _, err := activations.Of(c.Model.Activation); err != nil {
		return nil, exitcode.With(exitcode.Usage, err)
	}
	// Parameters in the order of the forward pass, with the units in which they are used: an optimizer that
	// gathers or offloads parameters does so by unit.
	s := &Stage{config: c, m: c.Model, device: d, region: p.region(), segments: c.Recompute.segments(len(c.Layers), p.DistributeSaved && p.TP.Size() > 1)}
	if p.FP8 != nil {
		s.scales = p.FP8.Delayed
	}
	if c.Embedding {
		s.embedding = newEmbedding(c.Model, p)
		for _, b := range branchesOn(c.Model, "embedding.word_embeddings") {
			s.embedding.words.Adapt(b)
		}
		s.uses.embedding = s.embedding.params()
	}
	for _, n := range c.Layers {
		l := newLayer(c.Model, n, p, recomputed)
		l.adapt(c.Model)
		s.layers = append(s.layers, l)
		tiles, rest := mpu.Tiles(l.params())
		s.uses.layers, s.uses.tiles = append(s.uses.layers, rest), append(s.uses.tiles, tiles)
	}
	if c.Head {
		s.addAhead(p)
		s.addHead(p)
	}
	s.nameUnits()
	// The other copy of a tied table is on another stage; both are kept equal.
	if c.shares() {
		s.tie(p)
	}
	return s, nil
}

// checkOneStage rejects a part of a model whose layers must be on one stage.
func (c *StageConfig) checkOneStage() error {
	why := c.Model.OneStage()
	if why == "" || c.Embedding && len(c.Layers) == c.Model.NumLayers {
		return nil
	}
	return exitcode.Errorf(exitcode.Usage, "%s; therefore all %d layers and the embedding must be on one pipeline stage: use --pipeline-model-parallel-size 1", why, c.Model.NumLayers)
}

// shares reports whether another stage has a copy of the word embedding that this one has.
func (c *StageConfig) shares() bool {
	return c.Embedding != c.Head && (c.Model.Tied || c.Model.MTP != nil)
}

// addAhead makes the layers of multi-token prediction, and the embedding that they read.
func (s *Stage) addAhead(p Parallel) {
	if s.m.MTP == nil {
		return
	}
	for i := range s.m.MTPLayers() {
		l := newMTPLayer(s.m, i, p)
		s.ahead, s.uses.ahead = append(s.ahead, l), append(s.uses.ahead, l.uses)
	}
	if s.words = s.embedding; s.words == nil {
		s.words = newEmbedding(s.m, p)
		s.uses.copied = s.words.params()
	}
}

func (s *Stage) addHead(p Parallel) {
	m := s.m
	s.finalNorm = newNorm(m, "decoder.final_layernorm", m.HiddenSize).outside(p)
	s.uses.headOwn = append(slices.Clone(s.uses.copied), s.finalNorm.params()...)
	// The table [padded vocabulary, h]: the embedding's, a copy of it, or the output layer's own.
	var table *mpu.VocabParallelEmbedding
	if m.Tied && s.embedding != nil {
		table = s.embedding.words
	} else if m.Tied && s.words != nil {
		table = s.words.words
	} else {
		table = wordTable(m, p)
		s.output = table.Weight
		s.uses.headOwn = append(s.uses.headOwn, s.output)
	}
	if !m.Tied {
		s.output.Name = "output_layer.weight"
	}
	// The softmax is over keptVocab rows: those behind it are padding.
	s.head = mpu.NewVocabParallelHead(p.region(), table.Weight, table.Start, keptVocab(m))
	s.head.Cap = float32(m.LogitCap)
	if branches := branchesOn(m, "output_layer"); branches != nil {
		s.head.Adapt(branches)
		s.uses.headOwn = append(s.uses.headOwn, s.head.AdapterParams()...)
	}
	// All that the head's forward reads, wherever it is from.
	s.uses.head = append(append(s.finalNorm.params(), table.Weight), s.head.AdapterParams()...)
	if s.words != nil && s.words.words != table {
		s.uses.head = append(s.uses.head, s.words.params()...)
	}
}

// nameUnits names, for each parameter, the unit in which it is used.
func (s *Stage) nameUnits() {
	name := func(unit string, ps []*mpu.Param) {
		for _, p := range ps {
			p.Unit = unit
		}
	}
	name("embedding", s.uses.embedding)
	for i, l := range s.layers {
		name(l.name(), s.uses.layers[i])
	}
	for _, l := range s.ahead {
		name(l.name, l.uses)
	}
	name("head", s.uses.headOwn)
}

// tie joins this stage's copy of a table that is tied, or read by multi-token prediction, with
// the other end's: they start equal, both have a part of the gradient, and the embedding's copy counts.
func (s *Stage) tie(p Parallel) {
	table := s.output
	switch {
	case s.embedding != nil:
		table = s.embedding.words.Weight
	case s.words != nil:
		table = s.words.words.Weight
	}
	table.Owner = s.embedding != nil
	table.Replicas, table.SumOver = p.Embedding, p.Embedding
}

// Params lists the stage's parameters in Megatron's module order, a layer's tiles last.
func (s *Stage) Params() []*mpu.Param {
	ps := slices.Concat(s.uses.embedding, s.uses.copied)
	for i, l := range s.uses.layers {
		ps = append(append(ps, l...), s.uses.tiles[i]...)
	}
	if s.finalNorm == nil {
		return ps
	}
	ps = append(append(ps, s.finalNorm.params()...), slices.Concat(s.uses.ahead...)...)
	if s.output != nil {
		ps = append(ps, s.output)
	}
	return append(ps, s.head.AdapterParams()...)
}

// ParamsOf lists the parameters of a rank's stages, in their order.
func ParamsOf(stages []*Stage) []*mpu.Param {
	var ps []*mpu.Param
	for _, s := range stages {
		ps = append(ps, s.Params()...)
	}
	return ps
}

// Materialize gives the parameters of a rank's stages memory, with main gradients
// where they are trained, and builds the constant tables. It returns the buffer
// that holds all their gradients.
func Materialize(d *device.Device, stages []*Stage, positions int, train bool) (grads Tensor) {
	if len(stages) > 0 {
		grads = mpu.Allocate(d, ParamsOf(stages), stages[0].config.DType, train)
	}
	for _, s := range stages {
		s.Prepare(positions)
	}
	return grads
}

// Materialize is the function for a rank with one stage.
func (s *Stage) Materialize(positions int, train bool) (grads Tensor) {
	return Materialize(s.device, []*Stage{s}, positions, train)
}

// Prepare builds the tables that are not parameters, such as RoPE's angles, for
// sequences of up to `positions`. A caller that allocates the parameters without
// Materialize calls it once.
func (s *Stage) Prepare(positions int) {
	tables := &positionTables{device: s.device, m: s.m, dtype: s.config.DType, positions: int64(positions)}
	for _, l := range s.allLayers() {
		l.prepare(s.device, tables)
	}
	for _, x := range s.mixtures() {
		x.router.prepare(s.device)
	}
	s.scales.Prepare(s.device)
}

// Scales are those of 8-bit operands that follow from earlier steps (--fp8-recipe delayed); nil: none do.
func (s *Stage) Scales() *mpu.Delayed { return s.scales }

// allLayers are the decoder's here, then those of multi-token prediction.
func (s *Stage) allLayers() []*layer {
	all := slices.Clone(s.layers)
	for _, l := range s.ahead {
		all = append(all, l.layer)
	}
	return all
}

// mixtures are the stage's layers of experts.
func (s *Stage) mixtures() (all []*mixture) {
	for _, l := range s.allLayers() {
		if x := l.mixture(); x != nil {
			all = append(all, x)
		}
	}
	return all
}

// BalanceExperts updates the routers' values that are added to scores when experts are chosen: biases
// (--moe-router-enable-expert-bias) from a step's tokens [layer][expert], or quantiles (quantile_balancing)
// from the step's quantiles [layer][expert].
func (s *Stage) BalanceExperts(tokens, quantiles [][]float64) {
	for _, x := range s.mixtures() {
		if r := x.router; r.byQuantiles() {
			r.moveQuantiles(s.device, quantiles[r.layer])
		} else {
			r.moveBias(s.device, tokens[r.layer])
		}
	}
}

// Buffers lists the stage's tensors in a checkpoint that are not parameters, such as router biases. write:
// this rank writes them for its data-parallel group.
func (s *Stage) Buffers(write bool) (all []mpu.Stored) {
	for _, x := range s.mixtures() {
		all = append(all, x.router.buffers(write && s.region.Rank() == 0)...)
	}
	for _, l := range s.layers {
		all = append(all, l.buffers(write && s.region.Rank() == 0)...)
	}
	return all
}

// storedModel is the prefix of a checkpoint's tensors of the model.
const storedModel = "model."

// checkLength refuses sequences that the ranks cannot share.
func (s *Stage) checkLength(p *Pass) error {
	if n := int64(s.region.Size()); s.region.Cut() && p.Seq()%n != 0 {
		return exitcode.Errorf(exitcode.Usage, "%d positions cannot be sharded over %d sequence-parallel ranks; choose a multiple of %d", p.Seq(), n, n)
	}
	return nil
}

// Logits of the positions in hidden [n, h], an output's rows, to f32 [n, vocabulary]
// on every tensor-parallel rank.
func (s *Stage) Logits(p *Pass, logits, hidden Tensor) error {
	tmp := p.D.Arena.Scope(device.Activations)
	defer tmp.Release()
	normed := tmp.Like(hidden)
	s.finalNorm.forward(p, tmp, normed, hidden)
	s.scaleLogits(p, normed)
	return s.head.Logits(p.D, &p.Hooks, logits, normed)
}

// scaleLogits multiplies the head's input, or its gradient, by the factor of the logits.
func (s *Stage) scaleLogits(p *Pass, x Tensor) {
	if s.scalesLogits() {
		p.D.Scale(device.ScaleArgs{Out: x, X: x, By: float32(s.logitScale())})
	}
}

func (s *Stage) scalesLogits() bool { return s.logitScale() != 1 }

// logitScale is what the head's input is multiplied by.
func (s *Stage) logitScale() float64 {
	scale := 1.0
	if s.m.LogitScale != 0 {
		scale = s.m.LogitScale
	}
	if s.config.LogitDivisor != 0 {
		scale /= s.config.LogitDivisor
	}
	return scale
}

// Normed sets y to the final norm of hidden [n, h], rows of an output: the input of the output layer,
// without the factor of the logits.
func (s *Stage) Normed(p *Pass, y, hidden Tensor) {
	tmp := p.D.Arena.Scope(device.Activations)
	defer tmp.Release()
	s.finalNorm.forward(p, tmp, y, hidden)
}

// NewPaged makes blocks of keys and values at each layer of the stage.
func (s *Stage) NewPaged(blocks int64) *Paged {
	c := &Paged{}
	if len(s.layers) > 0 {
		c.First = s.layers[0].number
	}
	for _, l := range s.layers {
		all := Tensor{}
		if l.attention != nil {
			all = l.attention.newBlocks(s.device, s.config.DType, blocks)
		}
		c.Layers = append(c.Layers, all)
	}
	return c
}

// BlockBytes is what a block takes over all layers of the stage.
func (s *Stage) BlockBytes() (bytes int64) {
	for _, l := range s.layers {
		if l.attention != nil {
			bytes += l.attention.blockBytes(s.config.DType)
		}
	}
	return bytes
}

// Free gives the blocks' memory back.
func (c *Paged) Free(d *device.Device) {
	for _, t := range c.Layers {
		if t.Given() {
			d.Arena.Free(t)
		}
	}
}
