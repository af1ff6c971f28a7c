package modelcase

import (
	"path/filepath"
	"testing"

	"monotron/internal/golden"
)

// Claim: routers, weights, balancing losses, biases, dropping, every gradient and the curve
// of mixtures of experts agree with Megatron-LM d98e8a64 and transformers 5.23, on one rank
// and in every layout of golden/model, with the tokens that each rank sent and got.
func TestGoldenMixtures(t *testing.T) {
	const run = "pretrain-moe" // of the command itself
	dir, seen := goldenCases(t), map[string]bool{run: true}
	for _, pattern := range []string{"moe-*", "megatron-moe-*", "*mixtral*", "*-moe", "olmoe", "gpt-oss*", "minimax*", "qwen3-next"} {
		folders, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(folders) == 0 && (pattern != "minimax*" || golden.Complete()) {
			t.Fatal(pattern, err)
		}
		for _, f := range folders {
			if name := filepath.Base(f); !seen[name] {
				seen[name] = true
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					r, err := Run(f, openRef, Options{})
					if err != nil {
						t.Fatal(err)
					}
					judge(t, r, 60)
				})
			}
		}
	}
}
