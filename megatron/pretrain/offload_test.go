package pretrain

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monotron/fault"
)

// Claim (docs/offload.md): a run with --offload-folder has the losses and weights, moments and
// all, of one without; checkpoints of one are gone on from by the other; nothing is left in
// the folder.
func TestOffloadedRunIsTheSame(t *testing.T) {
	for name, flags := range map[string]string{
		"f32":    "",
		"zero 3": "--zero-stage 3 --recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
		"bf16":   "--bf16 --zero-stage 3 --optimizer sgd",
		"fp16":   "--fp16 --initial-loss-scale 65536 --loss-scale-window 2 --hysteresis 1",
		"ranks":  "--world-size 2 --zero-stage 1 --log-params-norm",
		"ranks3": "--world-size 2 --zero-stage 3 --overlap-grad-reduce --overlap-param-gather --bf16",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			base := tiny + someData + flags + " --eval-interval 3 --eval-iters 1 --save-interval 4 "
			whole := strings.Join(numbers(must(t, dir, base+"--save DIR/whole").out), "\n")
			want := weights(t, filepath.Join(dir, "whole"))
			const away = " --offload-folder DIR/away "
			if got := strings.Join(numbers(must(t, dir, base+"--save DIR/all"+away).out), "\n"); got != whole {
				t.Errorf("in files\n%s\nin memory\n%s", got, whole)
			}
			must(t, dir, base+"--save DIR/part --exit-interval 2"+away)
			must(t, dir, base+"--save DIR/part --load DIR/part --exit-interval 3")
			must(t, dir, base+"--save DIR/part --load DIR/part"+away)
			for _, folder := range []string{"all", "part"} {
				if have := weights(t, filepath.Join(dir, folder)); have != want {
					t.Errorf("%s: weights %s, want %s", folder, have, want)
				}
			}
			if left, err := os.ReadDir(filepath.Join(dir, "away")); err != nil || len(left) > 0 {
				t.Errorf("%v, %v is left", err, left)
			}
		})
	}
}

// Claim: what cannot be is said before the first step.
func TestOffloadRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for flags, want := range map[string]fault.Code{"--async-save --save DIR/s --offload-folder DIR/a": fault.Usage, "--offload-folder DIR/file": fault.IO} {
		if r := call(t, dir, tiny+someData+flags); r.code() != want || !strings.Contains(r.err.Error(), "--offload-folder") {
			t.Errorf("%s: %d, %v", flags, r.code(), r.err)
		}
	}
}
