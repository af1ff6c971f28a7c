package training

import (
	"errors"
	"time"

	"monotron/csrc/device"
	"monotron/megatron/engine"
	"monotron/mpu/comm/watch"
	"monotron/mpu/ranks"
)

// Start sets a rank's run up: model, checkpoint or fresh weights, data.
func (j *Job) Start(rank *ranks.Rank) (_ *Run, err error) {
	r := &Run{Job: j, rank: rank, device: rank.Device, started: time.Now()}
	rank.Enter(watch.Startup, 0)
	if err = j.hold(rank); err != nil {
		return nil, err
	}
	if r.batches, err = NewBatchSizes(&r.Config, rank.Sizes.DP); err != nil {
		return nil, err
	}
	r.votes = r.device.Arena.Zeroed(device.Workspace, device.I64, 1)
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Engine.Close())
		}
	}()
	if r.Engine, err = engine.New(rank, r.Config.Config, j.schedule); err != nil {
		return nil, err
	}
	if r.log, err = newLogger(r); err != nil {
		return nil, err
	}
	r.pulse = newPulse(r)
	r.Engine.Timers = r.log.timers
	if r.device.Trail() != nil {
		r.log.timers.Clock = r.device
	}
	r.order = ownOrder(&r.Config)
	r.log.info("device", "device %s: %s, %d threads", r.device.Name, r.device.Describe(), device.SharedPool().Threads())
	if err = r.Engine.ChooseAttention(r.Config.microShapes(), r.log.note); err != nil {
		return nil, err
	}
	if r.Config.Graphs {
		if why := r.Engine.Capture(); why != "" {
			r.log.note("no CUDA graphs: %s", why)
		}
	}
	if rank.Carrier != "" {
		r.log.info("comm", "between ranks: %s", rank.Carrier)
	}
	if err = r.log.parameters(r.Engine.Params); err != nil {
		return nil, err
	}
	if r.Config.OptimizerCPUOffload && r.device.OnHost() {
		r.log.note("--optimizer-cpu-offload changes nothing: the memory of device %s is the host's", r.device.Name)
	}
	if err = r.tellFreezing(); err != nil {
		return nil, err
	}
	r.tellExperts()
	if err = r.restore(); err != nil {
		return nil, err
	}
	r.tellOverwriting()
	sets, err := j.data(func(text string) { r.log.info("data", "%s", text) })
	if err != nil {
		return nil, err
	}
	if r.feeds, err = newFeeds(&r.Config, sets, rank.Place.DP, r.order, r.log.note); err != nil {
		return nil, err
	}
	if err = r.checkPrompts(); err != nil {
		return nil, err
	}
	return r, r.device.Sync()
}
