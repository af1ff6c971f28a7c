package config

import (
	"monotron/megatron/schedule"
)

// Split is how the model is cut over pipeline stages.
func (c *Step) Split() schedule.Split {
	l, m := &c.Layout, &c.Model
	s := schedule.Split{Layers: m.NumLayers, Stages: max(1, l.PP), First: l.FirstStageLayers, Last: l.LastStageLayers,
		EmbeddingCounts: l.EmbeddingCountsAsLayer, HeadCounts: l.LossCountsAsLayer, Layout: l.StageString, Method: l.PartitionMethod}
	if m.MTP != nil {
		s.Ahead = m.MTP.Depths
	}
	if s.Layout == "" {
		s.VirtualStages = l.VP
	}
	if s.Method == schedule.ByParameters && m.PaddedVocabSize > 0 {
		s.Weights = partWeights(c)
	}
	return s
}

// partWeights are the parameters of embedding, each layer and head. A tied head
// holds a copy of the word embedding on the last stage.
func partWeights(c *Step) []float64 {
	m := &c.Model
	table := float64(m.PaddedVocabSize) * float64(m.HiddenSize)
	weights := []float64{table + float64(m.MaxPositions)*float64(m.HiddenSize)}
	for layer := range m.NumLayers {
		weights = append(weights, float64(m.LayerParameters(layer)))
	}
	head := table + float64(m.HiddenSize)
	for i := range m.MTPLayers() {
		head += float64(m.MTPParameters(i))
	}
	return append(weights, head)
}

// PipelineSchedule is what the pipeline runs in a step of so many micro-batches.
func (c *Step) PipelineSchedule(micros int, forwardOnly bool) schedule.Config {
	l := &c.Layout
	return schedule.Config{Name: l.Schedule, Stages: max(1, l.PP), Chunks: max(1, l.VP), Micros: micros, Group: l.MicroBatchGroup, ForwardOnly: forwardOnly, NoOverlap: l.NoOverlapP2P}
}
