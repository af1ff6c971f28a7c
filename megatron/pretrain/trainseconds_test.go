package pretrain

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/internal/logging"
	"monotron/megatron/training"
)

// Claim (docs/flags.md): --train-seconds ends a run as its last iteration does, on all
// ranks at the same step: saved, evaluated, exit code 0.
func TestTrainSeconds(t *testing.T) {
	for _, layout := range []string{"", "--world-size 2", "--world-size 2 --pipeline-model-parallel-size 2"} {
		dir := t.TempDir()
		line := strings.Fields("--num-layers 2 --hidden-size 16 --num-attention-heads 2 --seq-length 64 --max-position-embeddings 64 --micro-batch-size 1 --global-batch-size 2 --train-iters 100000 " +
			"--train-seconds 1 --lr 1e-3 --tokenizer-type NullTokenizer --vocab-size 100 --mock-data --eval-iters 1 --eval-interval 100000 --log-interval 100000 --save " + dir + " " + layout)
		var out, notes bytes.Buffer
		open := func(string) (*device.Device, error) { return ref.Open(), nil }
		if err := run(context.Background(), line, open, training.Streams{Out: &out, Notes: logging.New(&notes)}); err != nil {
			t.Fatalf("%q: %v", layout, err)
		}
		saved, err := os.ReadFile(filepath.Join(dir, "latest_checkpointed_iteration.txt"))
		if err != nil || len(saved) == 0 || !strings.Contains(notes.String(), "training ends at iteration "+string(saved)+": --train-seconds 1 have passed") {
			t.Errorf("%q: saved %q, %v; told %s", layout, saved, err, notes.String())
		}
		if !strings.Contains(out.String(), "iteration "+string(saved)+" on test set") {
			t.Errorf("%q: no last evaluation in %s", layout, out.String())
		}
	}
}
