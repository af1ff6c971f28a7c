package training

import (
	"time"

	"monotron/csrc/device"
	"monotron/megatron/checkpoint/all"
	"monotron/megatron/checkpoint/memory"
	"monotron/megatron/config"
	"monotron/megatron/engine"
	"monotron/mpu/ranks"
)

// Run is one rank's training run, from its start to the last checkpoint. All
// ranks run the same lines; what one of them decides, they have agreed on.
type Run struct {
	*Job
	Engine *engine.Engine

	rank        *ranks.Rank
	device      *device.Device
	feeds       feeds
	batches     *config.BatchSizes
	at          Progress
	order       sampleOrder
	log         *logger
	saver       *saver
	memory      *memory.Store // nil: no checkpoints are kept in memory
	found       *memory.Found // the memory checkpoint that this start continues from; nil: none
	frozen      string        // checksum of the weights that memory checkpoints leave out; "": not known yet
	votes       device.Tensor // i64 [1]
	killChecked time.Time     // when --kill-switch-path was last checked
	voted       *float64      // what the ranks have seen, summed, as of the step before; nil: none, or something else came between
	started     time.Time
	trained     time.Duration // that this process's steps took, waiting for their data included
	pulse       *pulse
	bytes       *textBytes         // nil: the tokenizer's ids stand for no text
	base        *all.Base          // the weights that checkpoints leave out; nil: they hold all
	best        *Best              // nil: evaluations are not compared
	prefer      *preferring        // nil: the run learns from no preferences
	sampler     *sampling          // nil: the run learns from no answers of its own
	objective   objective          // prefer or sampler; nil: neither
	prints      *prints            // nil: no fingerprints are asked for
	specials    map[string][]int32 // checkpoint.Info's, of the checkpoint that was loaded; nil: the tokenizer says them
	lowest      bool               // tellWhySkipped has reported the steps since the last that was not skipped
}

// Progress counts what a run has consumed; a checkpoint keeps it.
type Progress struct {
	ConsumedTrain int64 // samples
	ConsumedValid int64
	SkippedTrain  int64 // samples that were not trained on: by --decrease-batch-size-if-needed, --iterations-to-skip
}

func due(iteration int64, every int) bool { return every > 0 && iteration%int64(every) == 0 }
