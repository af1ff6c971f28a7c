package training

import (
	"context"
	"errors"
	"io"
	"math"

	"monotron/csrc/device"
	"monotron/dataset"
	"monotron/internal/logging"
	"monotron/internal/store"
	"monotron/megatron/config"
	"monotron/megatron/engine"
	"monotron/mpu/ranks"
)

// Rehearsal is c's run without data, files and values, for devices that count
// (device.Counting): what its ranks do and hold is the run's own. The vocabulary is set. It
// trains each step on `micros` micro-batches a rank; 0: on as many as a full batch has.
func Rehearsal(c config.Run, micros int) (*Job, error) {
	c.Log = config.Log{Level: c.Log.Level, Format: c.Log.Format, Interval: c.Log.Interval, Throughput: c.Log.Throughput, ParamsNorm: c.Log.ParamsNorm, NumZeros: c.Log.NumZeros,
		MemoryInterval: c.Log.MemoryInterval, Memory: c.Log.Memory, TimingLevel: c.Log.TimingLevel, TimingOption: c.Log.TimingOption}
	c.Checkpoint.AllowMissing = c.Checkpoint.MayBeMissing() || store.IsURL(c.Checkpoint.Load) // which nobody asks here
	c.Checkpoint.Save, c.Checkpoint.Remote, c.Checkpoint.SaveOnLoad, c.Checkpoint.KeepBest, c.Patience, c.SamplePrompt, c.NumWorkers = "", "", "", false, 0, nil, 0
	if err := Adapt(&c); err != nil {
		return nil, err
	}
	schedule, err := rateSchedule(&c)
	if err != nil {
		return nil, err
	}
	if n, err := c.Iterations(); err != nil {
		return nil, err
	} else if !c.EvalAtStart && (c.EvalInterval == 0 || n < c.EvalInterval) {
		c.EvalIters, c.EvalTrainIters, c.FullValidation = 0, 0, false
	}
	c.RampupBatchSize, c.StepBatchSizeSchedule, c.IterationsToSkip = nil, "", nil
	dp := c.Layout.Sizes().DP
	if micros > 0 {
		c.GlobalBatchSize = micros * c.MicroBatchSize * dp
	}
	if n := c.EvalMicroBatchSize * dp; micros > 0 && n > 0 {
		c.EvalGlobalBatchSize = min(c.EvalGlobalBatchSize, 4*n) // one is let go before the next but one comes
	}
	if c.Validates() {
		c.EvalIters = 1
	}
	c.EvalTrainIters, c.FullValidation, c.DataloaderType = min(1, c.EvalTrainIters), false, "single"
	j := &Job{Config: c, iters: math.MaxInt64, schedule: schedule, console: newConsole(Streams{Out: io.Discard, Notes: logging.New(io.Discard)}, 1)}
	j.open.Do(func() { // these are the data
		j.sets[dataset.Train], j.sets[dataset.Valid] = newBlank(&c), newBlank(&c)
	})
	return j, nil
}

// Rehearse sets a rank up and takes its first steps, and an evaluation where the run has
// any; observer sees them. shard is what each of the rank's memory checkpoints takes in the memory of a
// host; 0: the run has none.
func (j *Job) Rehearse(rank *ranks.Rank, steps int, observer engine.Observer) (shard int64, err error) {
	defer device.CatchOutOfMemory(&err)
	r, err := j.Start(rank)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, r.log.close(), r.Engine.Close()) }()
	r.Engine.Observer = observer
	ctx := context.Background()
	for range steps {
		if err := r.iterate(ctx); err != nil {
			return 0, err
		}
	}
	if r.memory != nil {
		shard = r.memory.Shard()
	}
	if err := r.evaluateNow(ctx); err != nil || r.device.Counts() {
		return shard, err
	}
	_ = r.Engine.Weights() // waits for what peers still send
	return shard, nil
}

// blank is data whose samples are all the same: nobody reads them.
type blank struct{ sample dataset.Sample }

func newBlank(c *config.Run) blank {
	n := c.SeqLength
	zeros, ones := make([]int32, n), make([]float32, n)
	for i := range ones {
		ones[i] = 1
	}
	b := blank{dataset.Sample{Tokens: zeros, Labels: zeros, LossMask: ones, PositionIDs: zeros, DocStart: zeros}}
	if c.Tuning.Sequences() > 1 {
		b.sample.Also = []dataset.Sample{b.sample}
	}
	return b
}

func (blank) Len() int64                             { return math.MaxInt32 }
func (b blank) Sample(int64) (dataset.Sample, error) { return b.sample, nil }
