package training

import (
	"monotron/megatron/config"
	"monotron/megatron/engine"
	"monotron/megatron/optimizer"
)

// microShapes are the micro-batches of training and evaluation.
func microShapes(c *config.Run) engine.MicroShapes {
	each := c.Tuning.Sequences()
	s := engine.MicroShapes{Batches: []int64{int64(c.MicroBatchSize * each)}, Documents: c.Data.ResetAttentionMask || c.Data.InterDocumentMasking}
	if n := c.EvalMicroBatchSize; n > 0 && n != c.MicroBatchSize {
		s.Batches = append(s.Batches, int64(n*each))
	}
	return s
}

// rateSchedule is the course of the learning rate; an evaluation alone needs none.
func rateSchedule(c *config.Run) (optimizer.Schedule, error) {
	if c.SkipTrain && c.TrainIters == 0 && c.TrainSamples == 0 {
		return optimizer.Schedule{Style: optimizer.DecayConstant, WDStyle: optimizer.DecayConstant}, nil
	}
	return c.Optimizer.Schedule(c.TrainIters, c.TrainSamples, c.GlobalBatchSize)
}
