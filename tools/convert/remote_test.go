package convert

import (
	"context"
	"path/filepath"
	"testing"

	"monotron/internal/exitcode"
	"monotron/internal/store/storetest"
	"monotron/megatron/checkpoint/remote"
)

// Claim (docs/object-storage.md): --input takes the s3:// URL of a save folder; --output is refused.
func TestInputFromBucket(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
	storetest.New(t)
	local := convert(t, "--input", tiny, "--to", "native", "--output", filepath.Join(dir, "native"))
	r, err := remote.Open("s3://tests/runs/tiny")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Save(context.Background(), local); err != nil {
		t.Fatal(err)
	}
	fetched := convert(t, "--input", "s3://tests/runs/tiny", "--to", "hf", "--output", filepath.Join(dir, "hf"), "--tokenizer", tiny)
	direct := convert(t, "--input", local, "--to", "hf", "--output", filepath.Join(dir, "direct"), "--tokenizer", tiny)
	if !sameWeights(t, fetched, direct) {
		t.Error("the weights differ")
	}
	if _, _, err := call("--input", "s3://tests/runs/none", "--to", "hf", "--output", filepath.Join(dir, "x")); exitcode.CodeOf(err) != exitcode.NoInput {
		t.Error(err)
	}
	if _, _, err := call("--input", tiny, "--to", "native", "--output", "s3://tests/out"); exitcode.CodeOf(err) != exitcode.Usage {
		t.Error(err)
	}
}
