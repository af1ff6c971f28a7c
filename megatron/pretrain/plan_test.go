package pretrain

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/internal/exitcode"
	"monotron/internal/logging"
	"monotron/megatron/training"
)

// Claim (docs/plan.md): a model of 104 billion parameters on 128 ranks of one process is
// refused before any of its memory is asked for, with the numbers.
func TestWhatCannotFitIsRefused(t *testing.T) {
	line := strings.Fields("--num-layers 64 --hidden-size 11520 --num-attention-heads 80 --seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 4 --global-batch-size 2048 " +
		"--train-iters 10 --lr 1e-4 --tokenizer-type NullTokenizer --vocab-size 50256 --mock-data --tensor-model-parallel-size 4 --pipeline-model-parallel-size 4 --world-size 128")
	asked := func(string) (*device.Device, error) {
		d := ref.Open() // the plan is of the layout, and every build has this device
		d.Arena.Peaked = func() { t.Error("memory was asked for") }
		return d, nil
	}
	start := time.Now()
	err := run(context.Background(), line, asked, training.Streams{Out: io.Discard, Notes: logging.New(io.Discard)})
	if exitcode.CodeOf(err) != exitcode.Internal || !strings.Contains(err.Error(), "the 128 ranks on this host need") {
		t.Errorf("%v", err)
	}
	t.Logf("refused after %v", time.Since(start))
}
