package model

import (
	"monotron/csrc/device"
	"monotron/megatron/spec"
	"monotron/mpu"
	"monotron/mpu/comm"
)

// embedding is word rows + learned positions, BLOOM's norm, dropout.
type embedding struct {
	m        *spec.Model
	words    *mpu.VocabParallelEmbedding
	position *mpu.Param // nil: none learned
	norm     *norm      // nil: none
}

func newEmbedding(m *spec.Model, tp comm.Group) *embedding {
	init := mpu.Init{Std: m.EmbeddingInitStd}
	e := &embedding{m: m, words: mpu.NewVocabParallelEmbedding(tp, "embedding.word_embeddings.weight", keptVocab(m), int64(m.PaddedVocabSize), int64(m.HiddenSize), init)}
	if m.Position == spec.PositionLearned {
		e.position = mpu.Whole("embedding.position_embeddings.weight", init, int64(m.MaxPositions), int64(m.HiddenSize))
	}
	if m.EmbedNorm {
		e.norm = newNorm(m, "embedding.layernorm", m.HiddenSize)
	}
	return e
}

// keptVocab is how many vocabulary rows are trained and counted in the softmax.
func keptVocab(m *spec.Model) int64 {
	if m.PaddedVocabCounts {
		return int64(m.PaddedVocabSize)
	}
	return int64(m.VocabSize)
}

func (e *embedding) params() []*mpu.Param {
	ps := linearParams(e.words.Weight, e.position)
	if e.norm != nil {
		ps = append(ps, e.norm.params()...)
	}
	return ps
}

type embeddingSaved struct {
	scope *device.Scope
	sum   Tensor // before the norm, where there is one
	norm  normSaved
}

// forward sets y [tokens, h].
func (e *embedding) forward(p *Pass, s *device.Scope, y Tensor) (*embeddingSaved, error) {
	saved := &embeddingSaved{scope: s, sum: y}
	if e.norm != nil {
		saved.sum = s.Like(y)
	}
	if err := e.words.Forward(p.D, saved.sum, p.IDs); err != nil {
		return nil, err
	}
	if e.position != nil {
		p.D.EmbeddingForward(device.EmbeddingForwardArgs{Out: saved.sum, Table: e.position.Value, IDs: p.PositionIDs, Accumulate: 1})
	}
	if e.norm != nil {
		saved.norm = e.norm.forward(p, s, y, saved.sum)
	}
	if drop := p.dropout(e.m.HiddenDropout, "embedding.dropout"); drop.Rate != 0 {
		p.D.DropoutAdd(device.DropoutAddArgs{Out: y, X: y, Drop: drop})
	}
	return saved, nil
}

// backward adds to the tables' gradients; dy is used up.
func (e *embedding) backward(p *Pass, saved *embeddingSaved, dy Tensor) {
	defer saved.scope.Release()
	if drop := p.dropout(e.m.HiddenDropout, "embedding.dropout"); drop.Rate != 0 {
		p.D.DropoutBackward(device.DropoutBackwardArgs{DX: dy, DY: dy, Drop: drop})
	}
	if e.norm != nil {
		dsum := saved.scope.Like(dy)
		e.norm.backward(p, saved.norm, dsum, dy, saved.sum, Tensor{})
		dy = dsum
	}
	e.words.Backward(p.D, dy, p.IDs)
	if e.position != nil {
		p.D.EmbeddingBackward(device.EmbeddingBackwardArgs{DTable: e.position.Grad, DOut: dy, IDs: p.PositionIDs})
	}
}
