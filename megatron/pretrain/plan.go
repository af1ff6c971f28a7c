package pretrain

import (
	"errors"
	"time"

	"monotron/csrc/device"
	"monotron/internal/logging"
	"monotron/megatron/plan"
	"monotron/megatron/training"
	"monotron/mpu/bootstrap/launchenv"
)

// checkMemory counts the memory of this process's ranks, before anything is allocated, and refuses
// runs that cannot fit. Ranks that share a host's memory are compared with it together, by one of
// them: later ones would count the memory of the first as used by another program.
//
// The index arrays of the data, which are built later, are compared with what is left then.
func checkMemory(job *training.Job, env *launchenv.Env, open func() (*device.Device, error), notes *logging.Notes) error {
	if job.Config.NoPlan {
		return nil
	}
	job.Config.Data.Left = func() (int64, string) {
		capacity := plan.ProcessCapacity()
		return capacity.Bytes, capacity.Of
	}
	defer whileLong(notes)()
	d, err := open()
	if err != nil {
		return nil // the ranks will say so
	}
	defer d.Close()
	o, numbers, capacity := plan.Options{Device: d.Name, Real: d}, ours(job, env), plan.HostCapacity()
	switch s := d.Streams(); {
	case !d.OnHost() && s != nil:
		if env != nil {
			numbers = []int{env.Rank}
		}
		free, err := s.FreeMemory()
		if err != nil {
			return nil // the ranks will say so
		}
		capacity = plan.Capacity{Bytes: free, Of: "free on the GPU"}
	case env != nil && env.Local > 0:
		numbers, capacity = []int{env.Rank}, plan.Unlimited
	}
	if capacity != plan.Unlimited {
		job.MemoryFree = capacity.Bytes / int64(len(numbers))
	}
	c := job.Config
	if job.Restarts > 0 { // the memory of memory checkpoints is taken, and no longer free
		c.Checkpoint.MemoryInterval = 0
	}
	onDevice := c
	if !d.OnHost() {
		onDevice.Checkpoint.MemoryInterval = 0
	}
	kept, err := o.Check(onDevice, numbers, capacity)
	if err == nil && !d.OnHost() && (env == nil || env.Local == 0) {
		err = o.CheckHost(c, ours(job, env), plan.HostCapacity(), plan.OnGPU(env == nil, capacity))
	}
	if err != nil && !plan.IsUnfit(err) {
		notes.Warn("the run could not be planned: %v", err)
		return nil
	}
	if err == nil && d.OnHost() {
		processes := 1
		if env != nil {
			processes = env.LocalSize
		}
		if text := plan.Tight(kept, processes, capacity); text != "" {
			notes.Warn("%s", text)
		}
	}
	job.Planned = map[int]training.Planned{}
	for _, r := range kept {
		job.Planned[r.Number] = training.Planned{Most: r.Peak, ByPurpose: r.ByPurpose}
	}
	return err
}

// whileLong adds a note if counting takes long; what it returns ends that.
func whileLong(notes *logging.Notes) func() {
	const long = 2 * time.Second
	t := time.AfterFunc(long, func() {
		notes.Info("computing the memory of every rank, which takes a long time for a model with many layers; --no-plan skips this")
	})
	return func() { t.Stop() }
}

// ours are the ranks of this process, or, of several processes, of this host.
func ours(job *training.Job, env *launchenv.Env) (numbers []int) {
	first, n := 0, job.Config.Layout.Sizes().World()
	if env != nil {
		first, n = env.Rank-env.Local, env.LocalSize
	}
	for i := range n {
		numbers = append(numbers, first+i)
	}
	return numbers
}

// afford does what a rank needs device memory for; where that is lacking the error says what
// would save some.
func afford(job *training.Job, rank int, f func() error) error {
	err := func() (err error) {
		defer device.CatchOutOfMemory(&err)
		return f()
	}()
	var lack *device.OutOfMemory
	if !errors.As(err, &lack) {
		return err
	}
	kind := job.Config.Device
	if kind == "auto" {
		kind = "cpu"
	}
	return plan.Options{Device: kind}.Exhausted(job.Config, rank, lack)
}
