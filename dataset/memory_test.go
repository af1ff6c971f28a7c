package dataset

import (
	"math"
	"strings"
	"testing"

	"monotron/internal/exitcode"
)

// Claim: index arrays that do not fit the memory left, of a split or of a blend, or whose
// size cannot be counted, are refused before any is allocated, with samples and bytes.
func TestIndexArraysThatDoNotFit(t *testing.T) {
	const left = 64 << 20
	build := func(samples int64) error {
		cfg := Config{Mock: true, SequenceLength: 32, NoCache: true, Left: func() (int64, string) { return left, "left here" }}
		_, _, _, err := Build(cfg, null(t, 100), [3]*int64{count(samples), count(1), count(1)})
		return err
	}
	if err := build(1000); err != nil {
		t.Error(err)
	}
	for _, samples := range []int64{20_000_000, 2_000_000_000, 1 << 50} {
		if err := build(samples); exitcode.CodeOf(err) != exitcode.Internal || !strings.Contains(err.Error(), "of memory, but only 64.0 MiB are left here") {
			t.Errorf("%d samples: %v", samples, err)
		}
	}
	if err := build(math.MaxInt64); exitcode.CodeOf(err) != exitcode.Usage {
		t.Error(err)
	}
	c := &cache{left: func() (int64, string) { return left, "left here" }}
	if _, err := newBlended(nil, nil, count(20_000_000), Train, c); exitcode.CodeOf(err) != exitcode.Internal || !strings.Contains(err.Error(), "train blend") {
		t.Error(err)
	}
	if _, ok := (&plan{epochs: 1 << 40, samples: 5}).arrayBytes(1<<31, 8, 8); ok {
		t.Error("2^73 bytes were counted")
	}
}
