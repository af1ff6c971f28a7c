package engine

import (
	"monotron/mpu"
	"monotron/mpu/topology"
)

// measureScales forgets the largest magnitudes that passes before this step measured, such as an evaluation's: the
// scales of --fp8-recipe delayed follow from steps alone.
func (e *Engine) measureScales() {
	for _, s := range e.Stages {
		s.Scales().Begin()
	}
}

// moveScales makes the scales of the next step from the magnitudes of this one, over all ranks that have a stage.
func (e *Engine) moveScales() error {
	for _, s := range e.Stages {
		if err := s.Scales().Update(e.rank.Groups[topology.TPDPCP]); err != nil {
			return err
		}
	}
	return nil
}

// Scales lists what a checkpoint keeps of --fp8-recipe delayed.
func (e *Engine) Scales() (all []mpu.Stored) {
	at := e.rank.Coordinates
	first := true // of the ranks that have the same experts
	if g := e.rank.Groups[topology.ExpertDP]; g != nil {
		first = g.Rank() == 0
	}
	for _, s := range e.Stages {
		all = append(all, s.Scales().Stored(at.DP == 0 && at.CP == 0 && at.TP == 0, first)...)
	}
	return all
}
