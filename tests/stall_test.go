package tests

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestStallOnGPU (docs/failures.md): a kernel that never ends gets its verdict, although who
// waits for the GPU keeps a core: for ranks that are goroutines of one process, and for
// processes, where the rank with that kernel is the one to blame.
func TestStallOnGPU(t *testing.T) {
	if !strings.Contains(os.Getenv("MONOTRON_CUDA_LIBRARY"), "cudaemu") {
		t.Skip("MONOTRON_CUDA_LIBRARY does not name the emulated kernels; make test-emu sets it")
	}
	bin := program(t)
	rank := filepath.Join(t.TempDir(), "rank")
	script := fmt.Sprintf("#!/bin/sh\n[ \"$RANK\" != 1 ] || export MONOTRON_EMU_HANG=400\nexec %s/monotron \"$@\"\n", bin)
	if err := os.WriteFile(rank, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	train := "pretrain_gpt --num-layers 2 --hidden-size 32 --num-attention-heads 2 --seq-length 16 --max-position-embeddings 16 --micro-batch-size 2 " +
		"--global-batch-size 4 --lr 1e-3 --mock-data --tokenizer-type NullTokenizer --vocab-size 63 --eval-iters 0 --seed 1 --train-iters 4 --device cuda --stall-seconds 5 "
	for name, c := range map[string]struct{ line, environment, want string }{
		"one rank":   {train, "MONOTRON_EMU_HANG=400", "rank 0 makes no progress: it is in "},
		"goroutines": {train + "--world-size 2 --tensor-model-parallel-size 2", "MONOTRON_EMU_HANG=700", ", where rank "},
		"processes": {"launch --nproc-per-node 2 -- " + rank + " " + train + "--tensor-model-parallel-size 2 --distributed-backend gloo",
			"MONOTRON_EMU_GPUS=2", "rank 1 never entered "},
	} {
		cmd := exec.Command(filepath.Join(bin, "monotron"), strings.Fields(c.line)...)
		cmd.Env = append(os.Environ(), "MONOTRON_EMU_SPIN=1", c.environment)
		said, err := cmd.CombinedOutput()
		if cmd.ProcessState.ExitCode() != 70 || !strings.Contains(string(said), c.want) || !strings.Contains(string(said), "its GPU does not complete its work") {
			t.Errorf("%s: %v\n%s", name, err, said)
		}
	}
}
