package training

import (
	"fmt"
	"math"

	"monotron/csrc/device"
	"monotron/fault"
	"monotron/megatron/model"
)

// mostFused bounds the workspace that cuDNN's attention gets by --attention-backend auto:
// without atomics its backward keeps a square of the sequence for each head.
const mostFused = 8 << 30

// ChooseAttention does what --attention-backend asks and notes what was chosen, and why not
// the others.
func (e *Engine) ChooseAttention(note func(format string, args ...any)) error {
	const own = "attention: our own flash kernels"
	backend := e.config.AttentionBackend
	switch {
	case e.device.Name != "cuda":
		note("attention: device %s has one kind of its own, which keeps no scores; --attention-backend %s chooses on cuda alone", e.device.Name, backend)
	case backend == "flash":
		note("%s, as --attention-backend flash asks", own)
	case backend == "unfused" || backend == "local":
		note("%s: --attention-backend %s means kernels that keep all scores, of which there are none here", own, backend)
	case backend == "fused":
		chosen, err := e.fuseAttention(math.MaxInt64)
		if err != nil {
			return fault.Errorf(fault.Usage, "--attention-backend fused: cuDNN's attention cannot be had for this run: %w; auto and flash run our own kernels", err)
		}
		note("attention: %s, as --attention-backend fused asks", chosen)
	default:
		chosen, err := e.fuseAttention(mostFused)
		if err != nil {
			note("%s (flash), not cuDNN's (fused): %v; unfused and local are not here", own, err)
		} else {
			note("attention: %s; --attention-backend flash takes our own kernels, unfused and local are not here", chosen)
		}
	}
	return nil
}

// fuseAttention prepares cuDNN's attention for training's micro-batches, and evaluation's
// where they differ, and describes it.
func (e *Engine) fuseAttention(most int64) (string, error) {
	c := &e.config
	shape := model.AttentionRun{DType: e.dtype, Batch: int64(c.MicroBatchSize), Seq: int64(c.SeqLength), Workspace: most,
		Documents: c.Data.ResetAttentionMask || c.Data.InterDocumentMasking}
	off, err := model.FuseAttention(e.device, &c.Model, e.rank.parallel(c), shape)
	if err != nil {
		return "", err
	}
	if c.EvalMicroBatchSize > 0 && c.EvalMicroBatchSize != c.MicroBatchSize {
		shape.Batch = int64(c.EvalMicroBatchSize)
		if _, err := model.FuseAttention(e.device, &c.Model, e.rank.parallel(c), shape); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("cuDNN's (fused), which repeats bit for bit and is within %.2g %% of our kernels in a trial, in a workspace of %s", 100*off,
		device.Size(e.device.FusedWorkspace())), nil
}
