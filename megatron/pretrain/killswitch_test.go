package pretrain

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monotron/internal/exitcode"
)

// TestKillSwitch: a run does not start while the file is there, and ends with a checkpoint once it appears.
func TestKillSwitch(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "stop")
	line := "--num-layers 1 --hidden-size 8 --num-attention-heads 1 --seq-length 64 --max-position-embeddings 64 --micro-batch-size 1 --train-iters 100000 --lr 1e-3 --mock-data " +
		"--tokenizer-type NullTokenizer --vocab-size 10 --eval-iters 0 --log-interval 1 --save DIR/ck --world-size 2 --kill-switch-path " + path
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if r := call(t, dir, line); r.code() != exitcode.Again || !strings.Contains(r.err.Error(), "so the run does not start") {
		t.Errorf("with the file: %v", r.err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	r := callUntil(t, t.Context(), dir, line, func(text string) {
		if strings.Contains(text, "iteration        3/") {
			_ = os.WriteFile(path, nil, 0o644) // that it is missing is seen by the run not ending
		}
	})
	if r.code() != exitcode.Again || !strings.Contains(r.err.Error(), "by --kill-switch-path: "+path+" exists") {
		t.Errorf("when it appears: %v", r.err)
	}
	if _, err := os.Stat(filepath.Join(dir, "ck", "latest_checkpointed_iteration.txt")); err != nil {
		t.Error(err)
	}
}
