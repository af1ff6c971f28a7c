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

// checkMemory counts what this process's ranks will hold, before anything is allocated, and refuses
// what cannot fit. Ranks that share a host's memory are held against it together, by one of
// them: later ones would take what the first have for somebody else's.
//
// The index arrays of the data, which are built later, are held against what is left then.
func checkMemory(job *training.Job, place *launchenv.Place, open func() (*device.Device, error), told *logging.Notes) error {
	if job.Config.NoPlan {
		return nil
	}
	job.Config.Data.Left = func() (int64, string) {
		room := plan.ProcessRoom()
		return room.Bytes, room.Of
	}
	defer whileLong(told)()
	d, err := open()
	if err != nil {
		return nil // the ranks will say so
	}
	defer d.Close()
	o, numbers, room := plan.Options{Device: d.Name, Beside: d}, ours(job, place), plan.HostRoom()
	switch s := d.Streams(); {
	case !d.OnHost() && s != nil:
		if place != nil {
			numbers = []int{place.Rank}
		}
		free, err := s.FreeMemory()
		if err != nil {
			return nil // the ranks will say so
		}
		room = plan.Room{Bytes: free, Of: "free on the GPU"}
	case place != nil && place.Local > 0:
		numbers, room = []int{place.Rank}, plan.Unlimited
	}
	if room != plan.Unlimited {
		job.MemoryFree = room.Bytes / int64(len(numbers))
	}
	c := job.Config
	if job.Restarts > 0 { // the memory of memory checkpoints is taken, and no longer free
		c.Checkpoint.MemoryInterval = 0
	}
	onDevice := c
	if !d.OnHost() {
		onDevice.Checkpoint.MemoryInterval = 0
	}
	held, err := o.Check(onDevice, numbers, room)
	if err == nil && !d.OnHost() && (place == nil || place.Local == 0) {
		err = o.CheckHost(c, ours(job, place), plan.HostRoom(), plan.OnGPU(place == nil, room))
	}
	if err != nil && !plan.IsUnfit(err) {
		told.Warn("the run could not be planned: %v", err)
		return nil
	}
	job.Planned = map[int]training.Planned{}
	for _, r := range held {
		job.Planned[r.Number] = training.Planned{Most: r.Peak, ByPurpose: r.ByPurpose}
	}
	return err
}

// whileLong says what goes on where counting takes long; what it returns ends that.
func whileLong(told *logging.Notes) func() {
	const long = 2 * time.Second
	t := time.AfterFunc(long, func() {
		told.Info("computing the memory of every rank, which takes long for many layers; --no-plan skips it")
	})
	return func() { t.Stop() }
}

// ours are the ranks of this process, or, of several processes, of this host.
func ours(job *training.Job, place *launchenv.Place) (numbers []int) {
	first, n := 0, job.Config.Layout.Sizes().World()
	if place != nil {
		first, n = place.Rank-place.Local, place.LocalSize
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
