package training

import (
	"errors"
	"time"

	"monotron/csrc/device"
	"monotron/dataset"
	"monotron/megatron/config"
	"monotron/megatron/engine"
	"monotron/mpu/health"
	"monotron/mpu/ranks"
)

// Start sets a rank's run up: model, checkpoint or fresh weights, data.
func (j *Job) Start(rank *ranks.Rank) (_ *Run, err error) {
	r := &Run{Job: j, rank: rank, device: rank.Device, started: time.Now()}
	rank.Enter(health.Startup, 0)
	if err = j.hold(rank); err != nil {
		return nil, err
	}
	if r.batches, err = config.NewBatchSizes(&r.Config, rank.Sizes.DP); err != nil {
		return nil, err
	}
	r.votes = r.device.Arena.Zeroed(device.Workspace, device.I64, 1)
	defer func() {
		if err != nil {
			if r.log != nil { // its page says why nothing was trained
				r.log.ended(err)
				err = errors.Join(err, r.log.close())
			}
			err = errors.Join(err, r.Engine.Close())
		}
	}()
	for _, next := range []func() error{r.build, r.prepareOps, r.tellModel, r.openSaver, r.openMemory, r.findMemory, r.beginPreference, r.beginSampling, r.watchBest, r.restore, r.openPrints, r.feed, r.checkBest, r.refer, r.checkPrompts, r.device.Sync} {
		if err = next(); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// build makes the engine and the logger.
func (r *Run) build() (err error) {
	if r.Engine, err = engine.New(r.rank, r.Config.Step, r.schedule); err != nil {
		return err
	}
	if r.log, err = newLogger(r); err != nil {
		return err
	}
	r.pulse = newPulse(r)
	r.Engine.Timers = r.log.timers
	if r.device.Trail() != nil {
		r.log.timers.Clock = r.device
	}
	r.order, r.bytes = ownOrder(&r.Config), newTextBytes(r.Tokenizer)
	return nil
}

// prepareOps chooses attention's kernels and captures graphs, where they are asked for.
func (r *Run) prepareOps() error {
	r.log.info("device", "device %s: %s, %d threads", r.device.Name, r.device.Describe(), device.SharedPool().Threads())
	if err := r.Engine.ChooseAttention(microShapes(&r.Config), r.log.note); err != nil {
		return err
	}
	if r.Config.Graphs {
		if why := r.Engine.Capture(); why != "" {
			r.log.note("no CUDA graphs: %s", why)
		}
	}
	return nil
}

// tellModel says what is about to be trained, before a checkpoint is read.
func (r *Run) tellModel() error {
	if r.rank.Carrier != "" {
		r.log.info("comm", "between ranks: %s", r.rank.Carrier)
	}
	if err := r.log.parameters(r.Engine.Params); err != nil {
		return err
	}
	if r.Config.OptimizerCPUOffload && r.device.OnHost() {
		r.log.note("--optimizer-cpu-offload has no effect: the memory of device %s is host memory", r.device.Name)
	}
	if err := r.tellFreezing(); err != nil {
		return err
	}
	r.tellExperts()
	return nil
}

// datasets opens the data of the three splits.
func (r *Run) datasets() ([3]dataset.Dataset, error) {
	if r.Config.Data.Remote() {
		defer signs(r.rank.Outside)()
	}
	return r.data(func(text string) { r.log.info("data", "%s", text) }, r.rank.Outside)
}

// feed opens the data where the checkpoint left it.
func (r *Run) feed() error {
	r.tellOverwriting()
	sets, err := r.datasets()
	if err != nil {
		return err
	}
	r.feeds, err = newFeeds(&r.Config, sets, r.rank.Coordinates.DP, r.order, r.log.note)
	for _, f := range []*Feed{r.feeds.train, r.feeds.valid, r.feeds.test, r.feeds.again} {
		r.cutPadding(f)
	}
	return err
}

// cutPadding has a feed's micro-batches no longer than their rows. Stages of a pipeline exchange one shape
// in a step.
func (r *Run) cutPadding(f *Feed) {
	if f != nil {
		f.unit, f.alike = lengthUnit(&r.Config, r.device), r.rank.Sizes.PP > 1
	}
}
