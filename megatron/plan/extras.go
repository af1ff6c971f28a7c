package plan

import (
	"cmp"

	"monotron/megatron/config"
	"monotron/megatron/schedule"
)

// Extras is what a training does in addition to its steps.
type Extras struct {
	Evaluation  float64 // seconds of one
	Evaluations int
	Writing     float64 // seconds that one checkpoint takes; 0 where the disk's rate is not known
	Saving      float64 // of these, those that delay the steps: none with --async-save
	Saves       int
}

// Seconds of all together.
func (b Extras) Seconds() float64 {
	return float64(b.Evaluations)*b.Evaluation + float64(b.Saves)*b.Saving
}

// Extras are the evaluations and checkpoints of the complete training: forward passes by the
// run's own schedule, and all that a checkpoint keeps by way of every node's disk.
func (k *Clock) Extras(by Constants) (b Extras, err error) {
	c := &k.config
	n, err := c.Iterations()
	if err != nil {
		return b, err
	}
	if c.EvalIters > 0 && c.EvalInterval > 0 {
		b.Evaluations = n / c.EvalInterval
		if b.Evaluation, err = k.evaluation(by); err != nil {
			return b, err
		}
	}
	if rate := k.machine.Disk.Write; rate > 0 {
		nodes := (c.Layout.Sizes().World() + k.machine.PerNode - 1) / k.machine.PerNode
		b.Writing = k.stored() / rate / float64(nodes)
	}
	if c.Checkpoint.Save == "" {
		return b, nil
	}
	b.Saves = 1 // at the end
	if c.Checkpoint.SaveInterval > 0 {
		b.Saves = (n + c.Checkpoint.SaveInterval - 1) / c.Checkpoint.SaveInterval
	}
	if !c.Checkpoint.Async {
		b.Saving = b.Writing
	}
	return b, nil
}

// evaluation is EvalIters passes forward.
func (k *Clock) evaluation(by Constants) (float64, error) {
	c := &k.config
	micro, batch := cmp.Or(c.EvalMicroBatchSize, c.MicroBatchSize), cmp.Or(c.EvalGlobalBatchSize, c.GlobalBatchSize)
	micros := max(1, batch/(micro*c.Layout.Sizes().DP))
	p, err := schedule.Compile(c.PipelineSchedule(micros, true))
	if err != nil {
		return 0, err
	}
	share := float64(micro) / float64(c.MicroBatchSize) // passes were counted for the training's micro-batch
	if k.shared != nil {
		return float64(c.EvalIters) * share * k.shared.walk(p).End, nil
	}
	return float64(c.EvalIters) * share * p.Seconds(k.times(by)), nil
}

// stored is the bytes of a checkpoint: values, and of the optimizer main parameters and moments.
func (k *Clock) stored() float64 {
	c := &k.config
	each := 2 + 4 + c.Optimizer.MomentBytes()
	switch {
	case c.Precision == config.F32 && c.Checkpoint.NoSaveOptim:
		each = 4
	case c.Precision == config.F32:
		each = 4 + c.Optimizer.MomentBytes()
	case c.Checkpoint.NoSaveOptim:
		each = 2
	}
	return each * float64(c.Model.Parameters())
}
