package training

import (
	"monotron/csrc/device"
	"monotron/fault"
	"monotron/megatron/model"
	"monotron/megatron/optimizer"
	"monotron/megatron/report"
	"monotron/megatron/schedule"
	"monotron/mpu"
	"monotron/mpu/comm"
	"monotron/mpu/ranks"
	"monotron/mpu/topology"
)

// Engine is a rank's part of the model with its optimizer: what one training step
// needs besides the data.
type Engine struct {
	config Config
	rank   *ranks.Rank
	device *device.Device
	dtype  device.DType

	Stages    []*model.Stage // the rank's chunks of the model, in the order of the pipeline
	Params    []*mpu.Param   // of all stages
	Optimizer *optimizer.Optimizer
	Scheduler *optimizer.ParamScheduler
	Scaler    *optimizer.Scaler
	Iteration int64 // done
	Timers    *report.Timers
	Settled   func() // called before an update: returns when nobody reads the weights any more; nil: nobody does

	parts     []schedule.Part // what each stage holds
	book      schedule.Book   // of proved lists of actions
	scale     device.Tensor   // f32 [1]: loss scale
	iteration device.Tensor   // i64 [1]: names this step's dropout masks
	sums      device.Tensor   // f64 [2]: Σ loss·mask, Σ mask
	micro     int             // micro-batch that goes forward
	locating  bool            // a step is run again to find where it became not finite
	steady    *steady         // nil: no graphs
	attention string          // on cuda, whose kernels: flash (ours) or fused (cuDNN's)
}

// NewEngine builds the rank's model and optimizer; parameters are not yet set.
func NewEngine(rank *ranks.Rank, c Config, s optimizer.Schedule) (*Engine, error) {
	d := rank.Device
	e := &Engine{config: c, rank: rank, device: d, Timers: report.NewTimers(report.LevelAlways), dtype: valueType(c.Precision),
		Scheduler: optimizer.NewParamScheduler(s), Scaler: optimizer.NewScaler(&c.Optimizer, c.Precision == FP16)}
	parts, err := c.Split().Parts()
	if err != nil {
		return nil, fault.With(fault.Usage, err)
	}
	e.parts = parts[rank.Place.PP]
	for _, part := range e.parts {
		stage, err := model.NewStage(d, model.StageConfig{Model: &e.config.Model, Layers: part.Layers, Embedding: part.Embedding, Head: part.Head,
			Recompute: c.Recompute, DType: e.dtype}, parallelOf(rank, &c.Layout))
		if err != nil {
			return nil, fault.With(fault.Usage, err)
		}
		e.Stages = append(e.Stages, stage)
	}
	e.Params = model.ParamsOf(e.Stages)
	e.Optimizer = optimizer.New(d, c.Optimizer, e.Params, e.dtype, sharersOf(rank), c.Layout.sharding(rank))
	for _, stage := range e.Stages {
		stage.Prepare(c.SeqLength)
	}
	e.scale = d.Arena.Zeroed(device.Workspace, device.F32, 1)
	e.iteration = d.Arena.Zeroed(device.Workspace, device.I64, 1)
	e.sums = d.Arena.Zeroed(device.Workspace, device.F64, 2)
	return e, d.Err()
}

// parallelOf is how a rank's stages share layers with other ranks.
func parallelOf(r *ranks.Rank, l *Layout) model.Parallel {
	return model.Parallel{TP: r.Groups[topology.TP], SequenceParallel: l.SequenceParallel, DistributeSaved: l.DistributeSavedActivation,
		Embedding: r.Groups[topology.Embedding], QuerySharers: r.Groups[topology.QuerySharers]}
}

// sharersOf are the ranks that the optimizer works with.
func sharersOf(r *ranks.Rank) optimizer.Groups {
	return optimizer.Groups{World: r.World(), Families: map[mpu.Family]optimizer.Family{
		mpu.Dense: {Data: r.Groups[topology.DP], Model: r.Groups[topology.Model], Shard: r.Groups[topology.Shard], Across: r.Groups[topology.Across]}}}
}

// sharding is how data-parallel ranks share the optimizer's work and memory.
func (l Layout) sharding(r *ranks.Rank) optimizer.Sharding {
	s := optimizer.Sharding{OverlapGradReduce: l.OverlapGradReduce, OverlapParamGather: l.OverlapParamGather, BucketSize: int64(l.BucketSize),
		BucketCount: int64(l.BucketCount), PadForBandwidth: l.PadBucketsForHighBusBW, LaterStage: r.Place.PP > 0}
	s.Strategy = optimizer.Strategy(l.Sharding)
	if s.Strategy == "" && l.DistributedOptimizer {
		s.Strategy = optimizer.Optim
	}
	return s
}

func valueType(precision string) device.DType {
	switch precision {
	case BF16:
		return device.BF16
	case FP16:
		return device.F16
	}
	return device.F32
}

// Initialize draws every parameter's start from the seed.
func (e *Engine) Initialize() error {
	return e.Optimizer.Initialize(uint64(e.config.Seed))
}

// Totals adds up the ranks' sums after a pass: Σ loss·mask and Σ mask of all samples.
func (e *Engine) Totals() (loss, tokens float64, err error) {
	if e.rank.Place.TP != 0 {
		e.device.Fill(e.sums, 0) // each rank of a tensor-parallel group has seen the same losses
	}
	if err = e.rank.World().AllReduce(e.sums, comm.Sum).Wait(); err != nil {
		return 0, 0, err
	}
	sums := device.ReadSlice[float64](e.device, e.sums)
	return sums[0], sums[1], e.device.Sync()
}

// Gradients are the main gradients after a step, before clipping, multiplied by
// StepResult.Factor: what this rank holds of them.
func (e *Engine) Gradients() []mpu.Stored { return e.Optimizer.Gradients() }
