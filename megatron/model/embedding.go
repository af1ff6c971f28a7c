package model

import (
	"monotron/csrc/device"
	"monotron/megatron/spec"
	"monotron/mpu"
)

// embedding is word rows + learned positions, BLOOM's norm, dropout.
type embedding struct {
	m        *spec.Model
	region   mpu.Region
	words    *mpu.VocabParallelEmbedding
	position *mpu.Param // nil: none learned
	norm     *norm      // nil: none
	perLayer *perLayer  // nil: none
}

func newEmbedding(m *spec.Model, p Parallel) *embedding {
	init := mpu.Init{Std: m.EmbeddingInitStd}
	e := &embedding{m: m, region: p.region(), words: wordTable(m, p)}
	if m.Position == spec.PositionLearned {
		e.position = mpu.Uncut("embedding.position_embeddings.weight", init, int64(m.PositionRows()), int64(m.HiddenSize))
		e.position.ByToken = true
		e.position.Outside(mpu.Region{Group: p.TP}) // its backward sees all positions
	}
	e.perLayer = newPerLayer(m, p)
	if m.EmbedNorm {
		e.norm = newNorm(m, "embedding.layernorm", m.HiddenSize).outside(p)
	}
	return e
}

// wordTable is the rank's rows of the word embedding or the output layer.
func wordTable(m *spec.Model, p Parallel) *mpu.VocabParallelEmbedding {
	return mpu.NewVocabParallelEmbedding(p.region(), "embedding.word_embeddings.weight", keptVocab(m), int64(m.PaddedVocabSize), int64(m.HiddenSize), mpu.Init{Std: m.EmbeddingInitStd})
}

// keptVocab is how many vocabulary rows are trained and counted in the softmax.
func keptVocab(m *spec.Model) int64 {
	if m.PaddedVocabCounts {
		return int64(m.PaddedVocabSize)
	}
	return int64(m.VocabSize)
}

func (e *embedding) params() []*mpu.Param {
	ps := e.words.Params()
	if e.position != nil {
		ps = append(ps, e.position)
	}
	if e.norm != nil {
		ps = append(ps, e.norm.params()...)
	}
	return append(ps, e.perLayer.params()...)
}

// readBack are the parameters whose values backward reads.
func (e *embedding) readBack() []*mpu.Param {
	ps := e.words.AdapterParams()
	if e.norm != nil {
		ps = append(ps, e.norm.params()...)
	}
	if e.perLayer != nil {
		ps = append(append(ps, e.perLayer.proj.Params()...), e.perLayer.norm.params()...)
	}
	return ps
}

type embeddingSaved struct {
	scope *device.Scope
	sum   Tensor // before the norm, where there is one
	norm  normSaved
}

// forward sets y [tokens, h], under sequence parallelism the rank's rows of it.
func (e *embedding) forward(p *Pass, s *device.Scope, y Tensor) (*embeddingSaved, error) {
	saved := &embeddingSaved{scope: s, sum: y}
	if e.norm != nil {
		saved.sum = s.Like(y)
	}
	if err := e.words.Forward(p.D, &p.Hooks, saved.sum, p.IDs); err != nil {
		return nil, err
	}
	if e.position != nil {
		p.D.EmbeddingForward(device.EmbeddingForwardArgs{Out: saved.sum, Table: e.positions(e.position.Value), IDs: e.region.Own(p.PositionIDs), Accumulate: 1})
	}
	e.scale(p, saved.sum)
	if e.norm != nil {
		saved.norm = e.norm.forward(p, s, y, saved.sum)
	}
	if drop := e.drop(p); !drop.none() {
		drop.add(device.DropoutAddArgs{Out: y, X: y})
	}
	if e.perLayer != nil {
		var err error
		if p.saved.perLayer, err = e.perLayer.forward(p, s, y); err != nil {
			return nil, err
		}
	}
	return saved, nil
}

// positions are the rows of a position table from that of position 0 on.
func (e *embedding) positions(table Tensor) Tensor {
	return table.Slice(0, int64(e.m.PositionOffset), int64(e.m.MaxPositions))
}

// scale multiplies embeddings, or their gradients, by the model's factor, rounded to the
// dtype of values as Gemma has it.
func (e *embedding) scale(p *Pass, x Tensor) {
	if e.m.EmbeddingScale == 0 || e.m.EmbeddingScale == 1 {
		return
	}
	p.D.Scale(device.ScaleArgs{Out: x, X: x, By: float32(rounded(p, e.m.EmbeddingScale))})
}

func (e *embedding) drop(p *Pass) hiddenDropout {
	return p.hidden(e.region, e.m.HiddenDropout, "embedding.dropout")
}

// backward adds to the tables' gradients; dy is used up.
func (e *embedding) backward(p *Pass, saved *embeddingSaved, dy Tensor) error {
	defer saved.scope.Release()
	if e.perLayer != nil {
		if err := e.perLayer.backward(p, p.saved.perLayer, dy); err != nil {
			return err
		}
	}
	if drop := e.drop(p); !drop.none() {
		drop.backward(dy, dy)
	}
	if e.norm != nil {
		dsum := saved.scope.Like(dy)
		e.norm.backward(p, saved.norm, dsum, dy, saved.sum, Tensor{})
		dy = dsum
	}
	e.scale(p, dy)
	dy, err := e.words.FullGradient(saved.scope, dy)
	if err != nil {
		return err
	}
	e.words.Backward(p.D, dy, p.IDs)
	if e.position != nil && !e.position.Frozen {
		p.D.EmbeddingBackward(device.EmbeddingBackwardArgs{DTable: e.positions(e.position.Grad), DOut: dy, IDs: p.PositionIDs, Grid: e.position.Grid, Peak: e.position.Peak})
	}
	return nil
}
