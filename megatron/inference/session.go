package inference

import (
	"slices"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/megatron/model"
	"monotron/mpu"
	"monotron/mpu/comm"
)

// Generator is a rank's part of a model that generates. Where several ranks share
// the model, all call the same methods with the same arguments: each has the same
// logits, makes the same choices and gets the same result.
type Generator struct {
	Device     *device.Device
	Stages     []*model.Stage // the rank's chunks, in the order of the pipeline
	Pipeline   *comm.Group    // the stages of the model; nil: this rank has all
	Context    *comm.Group    // ranks that share the positions of one pass; nil: this rank takes all
	Hidden     int64          // width between stages; not used without Pipeline
	DType      device.DType   // of values
	Vocab      int            // logits that count
	MaxContext int            // positions the model knows; 0: no limit of its own

	// LossColumns, where given, is the width of a training step's logits, padding included: log-probabilities of
	// chosen tokens are then that step's losses with the sign changed, in f32 and by the same operations.
	LossColumns int
	HeadRanks   int         // that share the output layer in that step; 0: one
	Sharers     *comm.Group // all ranks that share the model, for Continue; nil: those of Pipeline
}

// session is texts of equal length being extended together, their keys and values in blocks.
// It begins as one text.
type session struct {
	g      *Generator
	kv     []*model.Paged // of each stage here
	pool   *blockPool
	tables [][]int32 // blocks of each text
	used   int       // positions of each that are filled
}

// newSession has memory for so many texts of `capacity` positions.
func (g *Generator) newSession(capacity, texts int) *session {
	blocks := texts * blocksFor(capacity)
	return &session{g: g, kv: g.newPaged(blocks), pool: newBlockPool(blocks), tables: make([][]int32, 1)}
}

func (s *session) close() {
	for _, k := range s.kv {
		k.Free(s.g.Device)
	}
}

// extend feeds new tokens of every text, rows [texts][n], and shows the f32 logits after the
// last one of each, [texts, vocab], in order and a few at a time.
func (s *session) extend(rows [][]int32, use func(first int, logits model.Tensor) error) error {
	if n := s.g.shared(len(rows[0])); n > 0 {
		if err := s.share(rows[0][:n], func(*model.Pass, model.Tensor) error { return nil }); err != nil {
			return err
		}
		rows = [][]int32{rows[0][n:]}
	}
	b := &batch{}
	for _, row := range rows {
		b.wanted = append(b.wanted, int32((len(b.wanted)+1)*len(row)-1))
	}
	return s.feed(b, rows, use)
}

// feed runs new tokens of every text; use is shown the logits of the rows that b wants.
func (s *session) feed(b *batch, rows [][]int32, use func(first int, logits model.Tensor) error) error {
	s.grow(len(rows[0]))
	b.tables = s.tables
	for j, row := range rows {
		for i, id := range row {
			b.ids, b.positions, b.sequence = append(b.ids, id), append(b.positions, int32(s.used+i)), append(b.sequence, int32(j))
		}
	}
	s.used += len(rows[0])
	return s.g.rows(b, s.kv, use)
}

// grow gives every text blocks for n more positions.
func (s *session) grow(n int) {
	for j, table := range s.tables {
		for len(table) < blocksFor(s.used+n) {
			table = append(table, s.pool.take())
		}
		s.tables[j] = table
	}
}

// branch makes text j continue what text parents[j] was. Full blocks are shared by all that
// continue one text; of the last, to which each writes, all but one get a copy.
func (s *session) branch(parents []int) {
	tables := make([][]int32, len(parents))
	for j, from := range parents {
		tables[j] = slices.Clone(s.tables[from])
		s.pool.join(tables[j])
	}
	for _, table := range s.tables {
		s.pool.release(table)
	}
	s.tables = tables
	if s.used%device.PagedBlock == 0 {
		return
	}
	for _, table := range tables {
		last := &table[len(table)-1]
		if s.pool.shared(*last) {
			s.pool.release([]int32{*last})
			*last = s.copied(*last)
		}
	}
}

// copied is a new block that holds what another does.
func (s *session) copied(block int32) int32 {
	fresh := s.pool.take()
	for _, k := range s.kv {
		for _, layer := range k.Layers {
			if !layer.Given() { // its keys are another layer's
				continue
			}
			s.g.Device.Copy(layer.At(int64(fresh)), layer.At(int64(block)))
		}
	}
	return fresh
}

// shared is how many of n new tokens the ranks of Context share. Each takes the others, one
// at least, so that all have the last one's logits.
func (g *Generator) shared(n int) int {
	if g.Context == nil {
		return 0
	}
	unit := 2 * g.Context.Size()
	return (n - 1) / unit * unit
}

// share feeds the first tokens of the one text, of which this rank takes its part.
func (s *session) share(tokens []int32, use func(p *model.Pass, hidden model.Tensor) error) error {
	c := s.g.Context
	s.grow(len(tokens))
	s.used += len(tokens)
	return s.g.full(tokens, mpu.AllPositions(int64(len(tokens))).ZigZag(c.Rank(), c.Size()), s.kv, use)
}

// full runs those positions of a text from its start that are here; use gets the last
// stage's output.
func (g *Generator) full(tokens []int32, here mpu.Positions, kv []*model.Paged, use func(p *model.Pass, hidden model.Tensor) error) error {
	scope := g.Device.Arena.Scope(device.Activations)
	defer scope.Release()
	positions := make([]int32, len(tokens))
	for i := range positions {
		positions[i] = int32(i)
	}
	p := &model.Pass{D: g.Device, DType: g.DType, Batch: 1, Positions: here}
	p.IDs, p.PositionIDs = scope.Alloc(device.I32, p.Tokens()), scope.Alloc(device.I32, p.Tokens())
	device.WriteSlice(g.Device, p.IDs, mpu.Flatten(here, [][]int32{tokens}))
	device.WriteSlice(g.Device, p.PositionIDs, mpu.Flatten(here, [][]int32{positions}))
	return g.forward(p, kv, func(hidden model.Tensor) error { return use(p, hidden) })
}

// CheckPrompt refuses a prompt, with `more` tokens to follow, that the model cannot take.
func (g *Generator) CheckPrompt(prompt []int32, more int) error {
	if len(prompt) == 0 {
		return exitcode.Errorf(exitcode.Usage, "the prompt has no tokens; give at least one")
	}
	for i, id := range prompt {
		if id < 0 || int(id) >= g.Vocab {
			return exitcode.Errorf(exitcode.BadData, "token %d of the prompt is %d; the model's vocabulary has %d ids", i, id, g.Vocab)
		}
	}
	if more < 0 {
		return exitcode.Errorf(exitcode.Usage, "the number of tokens to generate is %d; give 0 or more", more)
	}
	if over := len(prompt) + min(more, 1) - g.MaxContext; g.MaxContext > 0 && over > 0 {
		return exitcode.Errorf(exitcode.Usage, "the prompt has %d tokens, but the model has only %d positions for the prompt and its continuation; shorten the prompt by at least %d tokens", len(prompt), g.MaxContext, over)
	}
	// Subtracted, because a client's number may be near the largest int.
	if g.MaxContext > 0 && more > g.MaxContext-len(prompt) {
		return exitcode.Errorf(exitcode.Usage, "%d prompt tokens and %d tokens to generate exceed the model's %d positions; generate at most %d", len(prompt), more, g.MaxContext, g.MaxContext-len(prompt))
	}
	return nil
}
