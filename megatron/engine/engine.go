package engine

import (
	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/megatron/config"
	"monotron/megatron/model"
	"monotron/megatron/optimizer"
	"monotron/megatron/optimizer/offload"
	"monotron/megatron/schedule"
	"monotron/megatron/telemetry"
	"monotron/mpu"
	"monotron/mpu/ranks"
)

// Engine is a rank's part of the model with its optimizer: what one training step
// needs in addition to the data.
type Engine struct {
	config config.Step
	rank   *ranks.Rank
	device *device.Device

	DType     device.DType   // of values
	Stages    []*model.Stage // the rank's chunks of the model, in the order of the pipeline
	Params    []*mpu.Param   // of all stages
	Optimizer *optimizer.Optimizer
	Scheduler *optimizer.ParamScheduler
	Scaler    *optimizer.Scaler
	Iteration int64 // done
	Timers    *telemetry.Timers
	Attention string         // on cuda, whose kernels: Flash (ours) or Fused (cuDNN's)
	Observer  Observer       // receives every step and evaluation that has no other observer
	Vote      func() float64 // what a rank has to say to all in this step, once; nil, 0: nothing
	Settled   func()         // called before an update: returns when nobody reads the weights any more; nil: nobody does

	Bare      bool       // adapters are off: passes are the base model's
	Objective Objective  // nil: the loss is the mean over the counted tokens
	weighed   [2]float64 // Σ loss and Σ count of the objective, on this rank

	Accuracy bool    // evaluations count the tokens whose label has the largest logit
	Right    float64 // of these so far, on this rank

	parts     []schedule.Part  // what each stage holds
	book      schedule.Book    // of proved lists of actions
	scale     device.Tensor    // f32 [1]: loss scale
	iteration device.Tensor    // i64 [1]: names this step's dropout masks
	sums      device.Tensor    // f64 [2]: Σ loss·mask, Σ mask; of the optimizer's Extra, whose third is for Vote
	ahead     device.Tensor    // f64 [depths, 2]: Σ mean loss of each depth of multi-token prediction; the second number is not used
	micro     int              // micro-batch that goes forward
	auxiliary *model.Auxiliary // nil: a dense model
	graphs    *graphs          // nil: none
	offload   *offload.Folder  // nil: nothing lies in files
	host      offload.Memory   // of state kept outside the device's memory
}

// New builds the rank's model and optimizer; parameters are not yet set.
func New(rank *ranks.Rank, c config.Step, s optimizer.Schedule) (*Engine, error) {
	d := rank.Device
	e := &Engine{config: c, rank: rank, device: d, Timers: telemetry.NewTimers(telemetry.LevelAlways), DType: c.DType(),
		Scheduler: optimizer.NewParamScheduler(s), Scaler: optimizer.NewScaler(&c.Optimizer, c.Precision == config.FP16)}
	if c.Leaves > 0 && d.Common != nil {
		d.Common()
	}
	if err := c.CheckFP8(); err != nil {
		return nil, err
	}
	// The stages of this pipeline rank.
	parts, err := c.Split().Parts()
	if err != nil {
		return nil, exitcode.With(exitcode.Usage, err)
	}
	e.parts = parts[rank.Coordinates.PP]
	if err := e.build(); err != nil {
		return nil, err
	}
	// Parameters, and what the optimizer must know about them.
	e.Params = model.ParamsOf(e.Stages)
	c.Optimizer.OwnClip = c.Model.MTP != nil && c.Model.MTP.DetachHeads
	for _, p := range e.Params {
		if c.DecayExpertBiases && p.Family == mpu.Experts {
			p.NoDecay = false
		}
	}
	if c.Leaves > 0 {
		c.Optimizer.Addends = addends(&c)
	}
	if err := e.freeze(); err != nil {
		return nil, err
	}
	if err := optimizer.CheckBlocks(&c.Optimizer, e.Params); err != nil {
		return nil, err
	}
	// Who holds which part of gradients and state, and what lies on disk or on the host.
	sharding := shardingOf(rank, &c.Layout)
	if sharding.Offloaded, err = e.offloaded(sharding.Strategy); err != nil {
		return nil, err
	}
	e.Optimizer = optimizer.New(d, c.Optimizer, e.Params, e.DType, sharersOf(rank, &c), sharding)
	// Tables and buffers of the full length, before memory is counted.
	for _, stage := range e.Stages {
		stage.Prepare(c.SeqLength)
	}
	e.allocate()
	return e, d.Err()
}

// build makes the rank's stages.
func (e *Engine) build() error {
	c := &e.config
	for _, part := range e.parts {
		stage, err := model.NewStage(e.device, model.StageConfig{Model: &c.Model, Layers: part.Layers, Embedding: part.Embedding, Head: part.Head,
			Recompute: c.Recompute, DType: e.DType, LogitDivisor: c.LogitDivisor}, parallelOf(e.rank, c))
		if err != nil {
			return exitcode.With(exitcode.Usage, err)
		}
		e.Stages = append(e.Stages, stage)
	}
	return nil
}

// allocate makes the tensors by which the device gets what changes from step to step.
func (e *Engine) allocate() {
	d := e.device
	e.scale = d.Arena.Zeroed(device.Workspace, device.F32, 1)
	e.iteration = d.Arena.Zeroed(device.Workspace, device.I64, 1)
	e.sums = e.Optimizer.Extra.Slice(0, 0, 2)
	if m := &e.config.Model; m.Experts != nil {
		e.auxiliary = model.NewAuxiliary(d, int64(m.AllLayers()), int64(m.Experts.Num), e.DType)
		e.auxiliary.PerToken, e.auxiliary.Bits = e.config.CalculatePerTokenLoss, e.routerLossBits()
	}
	if m := e.config.Model.MTP; m != nil {
		e.ahead = d.Arena.Zeroed(device.Workspace, device.F64, int64(m.Depths), 2)
	}
}

// tell resets the sums and gives the device what changes this step.
func (e *Engine) tell(scale float64) {
	e.device.Fill(e.Optimizer.Extra, 0)
	if e.ahead.Given() {
		e.device.Fill(e.ahead, 0)
	}
	e.weighed = [2]float64{}
	device.WriteSlice(e.device, e.scale, []float32{float32(scale)})
	device.WriteSlice(e.device, e.iteration, []int64{e.Iteration})
}

// packs reports whether a parameter is one that --quantize-base rounds.
func packs(p *mpu.Param) bool { return len(p.Shape) == 2 && model.IsLinearWeight(p.Name) }

// offloaded is what is offloaded: the optimizer's state, of a packed
// base the linear layers' weights alone, with --offload-folder under ZeRO-3 parameters too, and where these are tiled gradients.
func (e *Engine) offloaded(s optimizer.Strategy) (w optimizer.Offloaded, err error) {
	dir := e.config.OffloadFolder
	if dir == "" {
		if e.config.PackedBase {
			return optimizer.Offloaded{Store: e.host.Packed(e.DType), Packed: packs}, nil
		}
		if e.toHost() {
			w.Store, w.Fraction = e.host.Store, e.config.OptimizerOffloadFraction
		}
		return w, nil
	}
	if !e.device.Counts() {
		if e.offload, err = offload.Open(dir, e.rank.Number, e.rank.World().Size()); err != nil {
			return w, err
		}
	}
	parameters := s == optimizer.OptimGradsParams
	return optimizer.Offloaded{Store: e.offload.Store, Parameters: parameters, Gradients: parameters && e.config.Layout.MemoryCentricTiling > 0}, nil
}

// toHost reports whether optimizer's state lies in the host's memory, apart from the
// device's.
func (e *Engine) toHost() bool {
	return e.config.OptimizerCPUOffload && e.config.OptimizerOffloadFraction > 0 && e.device.Apart()
}

// PackedBytes is what the rank's weights take that lie in memory as NF4; 0: none do.
func (e *Engine) PackedBytes() int64 { return e.host.PackedBytes() }

// Close removes offloaded state. Nothing of the engine may be used afterwards.
func (e *Engine) Close() error {
	if e == nil {
		return nil
	}
	e.host.Close()
	return e.offload.Close()
}

// Initialize draws every parameter's start from the seed.
func (e *Engine) Initialize() error {
	return e.Optimizer.Initialize(uint64(e.config.Seed))
}

// Weights are the parameters' values, and what else belongs to the model.
func (e *Engine) Weights() []mpu.Stored { return e.withBuffers(e.Optimizer.Weights()) }

// Trained are those of Weights that training changes.
func (e *Engine) Trained() []mpu.Stored { return e.withBuffers(e.Optimizer.TrainedWeights()) }

// withBuffers adds the buffers of the model.
func (e *Engine) withBuffers(all []mpu.Stored) []mpu.Stored {
	for _, s := range e.Stages {
		all = append(all, s.Buffers(e.rank.Coordinates.DP == 0 && e.rank.Coordinates.CP == 0)...)
	}
	return all
}

// Gradients are the main gradients after a step, before clipping, multiplied by
// Result.Factor: what this rank holds of them.
func (e *Engine) Gradients() []mpu.Stored { return e.Optimizer.Gradients() }
