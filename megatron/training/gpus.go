package training

import (
	"context"
	"os"
	"time"

	"monotron/csrc/gpus"
	"monotron/internal/logging"
)

// gpuGlance is how often a run checks its GPUs.
const gpuGlance = 30 * time.Second

// watchGPUs logs, once a process, which GPUs the run sees, then every change of their
// condition for the worse or back, and every Xid, until ctx ends.
func (r *Run) watchGPUs(ctx context.Context) {
	if !r.device.IsGPU() && r.Config.Layout.NCCLRequested && r.firstHere() {
		r.notes().Info("--distributed-backend nccl: this run computes on %s, not on a GPU; ranks of one process exchange data in memory, and processes over shared memory and Gloo", r.device.Name)
	}
	if !r.device.IsGPU() || r.device.OnHost() || !r.firstHere() {
		return
	}
	before, err := visibleGPUs()
	if err != nil {
		r.notes().Warn("GPUs cannot be monitored: %v", err)
		return
	}
	for _, g := range before.GPUs {
		r.notes().Info("%s; driver %s (CUDA %s)", g, before.Driver, before.CUDA)
	}
	go func() {
		if err := gpus.Watch(ctx, func(line string) { r.notes().Warn("%s", line) }); err != nil {
			r.notes().Warn("Xid errors cannot be reported: %v", err)
		}
	}()
	go r.compareGPUs(ctx, before)
}

// notes are what this process says of its GPUs.
func (r *Run) notes() *logging.Notes { return r.console.Notes.From("gpus").Rank(r.rank.Number) }

// firstHere: this rank speaks for its process.
func (r *Run) firstHere() bool { return r.rank.RunName != "" || r.rank.First() }

func (r *Run) compareGPUs(ctx context.Context, before gpus.Survey) {
	tick := time.NewTicker(gpuGlance)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now, err := visibleGPUs()
		if err != nil {
			r.notes().Warn("GPUs can no longer be monitored: %v", err)
			return
		}
		for _, line := range now.Changes(before) {
			r.notes().Warn("%s", line)
		}
		before = now
	}
}

// visibleGPUs are those that CUDA shows this process.
func visibleGPUs() (gpus.Survey, error) {
	s, err := gpus.Read()
	if err != nil {
		return s, err
	}
	value, set := os.LookupEnv("CUDA_VISIBLE_DEVICES")
	s.GPUs, err = s.Visible(gpus.Environment{Value: value, Set: set})
	return s, err
}
