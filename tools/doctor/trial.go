package doctor

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/internal/logging"
	"monotron/megatron/arguments"
	"monotron/megatron/training"
	"monotron/mpu/comm/process"
	"monotron/mpu/ranks"
)

// trialSteps of a GPT of three layers are trained over all ranks, data-parallel, on made
// up text: whether a run works at all is best seen by running one.
const trialSteps = 10

const trialFlags = "--num-layers 3 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --max-position-embeddings 64 " +
	"--micro-batch-size 1 --mock-data --tokenizer-type NullTokenizer --vocab-size 127 --lr 1e-3 --eval-iters 0 --seed 1"

// trained is how the trial went; on other ranks than 0 only Steps is set.
type trained struct {
	Device string        `json:"device"`
	Steps  int           `json:"steps"`
	Took   time.Duration `json:"took_ns"` // the set-up too
}

func (t *trained) String() string {
	return fmt.Sprintf("a GPT of three layers trained for %d steps over all ranks on %s, in %.2f s", t.Steps, t.Device, t.Took.Seconds())
}

// trial trains on the fastest device that every rank opens.
func trial(ctx context.Context, p *process.World, open func(string) (*device.Device, error)) (*trained, error) {
	flags := append(strings.Fields(trialFlags), "--train-iters", strconv.Itoa(trialSteps), "--global-batch-size", strconv.Itoa(p.Size()))
	config, _, err := arguments.ParseWith(arguments.Options{Layouts: true, Ranks: p.Size()}, flags)
	if err != nil {
		return nil, exitcode.With(exitcode.Internal, err)
	}
	began := time.Now()
	job, err := training.Prepare(config, training.Streams{Out: io.Discard, Notes: logging.New(io.Discard)})
	if err != nil {
		return nil, err
	}
	t := &trained{Steps: trialSteps}
	err = job.Ranks(p, func() (*device.Device, error) { return open("auto") }, func(rank *ranks.Rank) error {
		t.Device = rank.Device.Name
		r, err := job.Start(rank)
		if err != nil {
			return err
		}
		return r.Train(ctx)
	})
	t.Took = time.Since(began)
	if bad := job.Close(); err == nil {
		err = bad
	}
	return t, err
}
