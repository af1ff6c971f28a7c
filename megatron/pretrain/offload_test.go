package pretrain

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monotron/internal/exitcode"
)

// Claim (docs/offload.md): a run with --offload-folder has the losses and weights, moments and
// all, of one without; checkpoints of one are gone on from by the other; nothing is left in
// the folder.
func TestOffloadedRunIsTheSame(t *testing.T) {
	for name, flags := range map[string]string{
		"f32":     "",
		"zero 3":  "--zero-stage 3 --recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
		"bf16":    "--bf16 --zero-stage 3 --optimizer sgd",
		"fp16":    "--fp16 --initial-loss-scale 65536 --loss-scale-window 2 --hysteresis 1",
		"ranks":   "--world-size 2 --zero-stage 1 --log-params-norm",
		"ranks3":  "--world-size 2 --zero-stage 3 --overlap-grad-reduce --overlap-param-gather --bf16",
		"experts": "--world-size 2 --zero-stage 3 --num-experts 4 --expert-model-parallel-size 2 --moe-router-topk 2 --moe-grouped-gemm --disable-bias-linear",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			base := tiny + someData + flags + " --eval-interval 3 --eval-iters 1 --save-interval 4 "
			full := strings.Join(numbers(must(t, dir, base+"--save DIR/whole").out), "\n")
			want := weights(t, filepath.Join(dir, "whole"))
			const away = " --offload-folder DIR/away "
			if got := strings.Join(numbers(must(t, dir, base+"--save DIR/all"+away).out), "\n"); got != full {
				t.Errorf("in files\n%s\nin memory\n%s", got, full)
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

// Claim (docs/offload.md): with --memory-centric-tiling a run has the losses and weights of one
// without, in layouts of every kind, with gradients accumulated over micro-batches, with files and
// without.
func TestTiledRunIsTheSame(t *testing.T) {
	const llama = " --swiglu --normalization RMSNorm --untie-embeddings-and-output-weights --position-embedding-type rope --group-query-attention --num-query-groups 1 --ffn-hidden-size 48 --disable-bias-linear "
	for name, flags := range map[string]string{
		"alone":    "--offload-folder DIR/away --recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
		"bf16":     "--bf16 --offload-folder DIR/away" + llama,
		"fp16":     "--fp16 --initial-loss-scale 65536 --loss-scale-window 2 --hysteresis 1 --offload-folder DIR/away",
		"ranks":    "--world-size 2 --overlap-grad-reduce --overlap-param-gather",
		"files":    "--world-size 2 --offload-folder DIR/away --bf16 --micro-batch-size 1",
		"tensor":   "--world-size 4 --tensor-model-parallel-size 2 --sequence-parallel" + llama,
		"pipeline": "--world-size 4 --pipeline-model-parallel-size 2 --offload-folder DIR/away --micro-batch-size 1",
		"freeze":   "--offload-folder DIR/away --freeze-parameters decoder.layers.0.*",
		"experts":  "--world-size 2 --num-experts 4 --expert-model-parallel-size 2 --moe-router-topk 2 --moe-shared-expert-intermediate-size 48 --disable-bias-linear --offload-folder DIR/away",
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			base := tiny + someData + flags + " --zero-stage 3 --train-iters 4 --eval-interval 3 --eval-iters 1 --save-interval 4 "
			full := strings.Join(numbers(must(t, dir, base+"--save DIR/whole").out), "\n")
			if got := strings.Join(numbers(must(t, dir, base+"--save DIR/tiled --memory-centric-tiling 3").out), "\n"); got != full {
				t.Errorf("tiled\n%s\nwhole\n%s", got, full)
			}
			if got, want := weights(t, filepath.Join(dir, "tiled")), weights(t, filepath.Join(dir, "whole")); got != want {
				t.Errorf("weights %s, whole %s", got, want)
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
	for _, c := range []struct {
		flags, named string
		want         exitcode.Code
	}{
		{"--async-save --save DIR/s --offload-folder DIR/a", "--offload-folder", exitcode.Usage}, {"--offload-folder DIR/file", "--offload-folder", exitcode.IO},
		{"--memory-centric-tiling 2 --offload-folder DIR/a", "--zero-stage 3", exitcode.Usage},
		{"--memory-centric-tiling 2 --zero-stage 3 --world-size 2 --num-distributed-optimizer-instances 2", "--num-distributed-optimizer-instances", exitcode.Usage},
		{"--memory-centric-tiling 2 --zero-stage 3 --world-size 2 --tensor-model-parallel-size 2 --sequence-parallel --tp-comm-overlap --offload-folder DIR/a", "--tp-comm-overlap", exitcode.Usage},
	} {
		if r := call(t, dir, tiny+someData+c.flags); r.code() != c.want || !strings.Contains(r.err.Error(), c.named) {
			t.Errorf("%s: %d, %v", c.flags, r.code(), r.err)
		}
	}
}
