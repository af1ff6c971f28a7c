package pretrain

import (
	"os"
	"strconv"

	"monotron/internal/exitcode"
	"monotron/internal/system"
	"monotron/megatron/checkpoint/memory"
	"monotron/megatron/training"
	"monotron/mpu/bootstrap/launchenv"
)

// holdMemory takes the memory that monotron launch holds for memory checkpoints of this process's
// rank, and how often it has restarted the run. env is nil where all ranks are here.
func holdMemory(job *training.Job, env *launchenv.Env) error {
	if text := os.Getenv(launchenv.Restarts); text != "" {
		job.Restarts, _ = strconv.Atoi(text) // torchrun's may be another thing: it only chooses the notes
	}
	job.Hosts = env != nil && env.Hosts()
	if job.Config.Checkpoint.MemoryInterval == 0 {
		return nil
	}
	first, err := strconv.Atoi(os.Getenv(launchenv.Segments))
	if err != nil || env == nil && job.Config.Layout.Sizes().World() > 1 {
		return exitcode.Errorf(exitcode.Usage, "--memory-checkpoint-interval needs monotron launch, which keeps the memory of the checkpoints; "+
			"start the run with monotron launch --nproc-per-node N --max-restarts K -- pretrain_gpt ..., or use --save-interval")
	}
	for i := range memory.Segments {
		job.Segments = append(job.Segments, system.Inherited(first+i, "memory checkpoint"))
	}
	return nil
}
