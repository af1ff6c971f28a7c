package training

import (
	"fmt"

	"monotron/megatron/model"
	"monotron/megatron/schedule"
)

// Split is how the model is cut over pipeline stages.
func (c *Config) Split() schedule.Split {
	l, m := &c.Layout, &c.Model
	s := schedule.Split{Layers: m.NumLayers, Stages: max(1, l.PP), First: l.FirstStageLayers, Last: l.LastStageLayers,
		EmbeddingCounts: l.EmbeddingCountsAsLayer, HeadCounts: l.LossCountsAsLayer, Layout: l.StageString, Method: l.PartitionMethod}
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
func partWeights(c *Config) []float64 {
	m := &c.Model
	table := float64(m.PaddedVocabSize) * float64(m.HiddenSize)
	weights := []float64{table + float64(m.MaxPositions)*float64(m.HiddenSize)}
	for layer := range m.NumLayers {
		weights = append(weights, float64(m.LayerParameters(layer)))
	}
	return append(weights, table+float64(m.HiddenSize))
}

// Schedule is what the pipeline runs in a step of so many micro-batches.
func (c *Config) Schedule(micros int, forwardOnly bool) schedule.Config {
	l := &c.Layout
	return schedule.Config{Name: l.Schedule, Stages: max(1, l.PP), Chunks: max(1, l.VP), Micros: micros, Group: l.MicroBatchGroup, ForwardOnly: forwardOnly, NoOverlap: l.NoOverlapP2P}
}

// CheckSchedule tells whether the pipeline can run every batch size of the run.
func (c *Config) CheckSchedule(b *BatchSizes) error {
	sizes := []int{b.final}
	for _, s := range b.steps {
		sizes = append(sizes, s.size)
	}
	if b.ramp != nil {
		for size := b.ramp[0]; size < b.final && len(sizes) < 1<<16; size += b.ramp[1] {
			sizes = append(sizes, size)
		}
	}
	for _, size := range sizes {
		now, err := b.cut(size, "")
		if err != nil {
			return nil // Check's matter
		}
		if err := c.Schedule(now.Micros, false).Check(); err != nil {
			return fmt.Errorf("in batches of %d samples: %w", size, err)
		}
	}
	return nil
}

// parameterNames are those of the whole model, whatever ranks hold them.
func (c *Config) parameterNames() (map[string]bool, error) {
	layers := make([]int, c.Model.NumLayers)
	for i := range layers {
		layers[i] = i
	}
	whole, err := model.NewStage(nil, model.StageConfig{Model: &c.Model, Layers: layers, Embedding: true, Head: true}, model.Alone(nil))
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, p := range whole.Params() {
		names[p.Name] = true
	}
	return names, nil
}
