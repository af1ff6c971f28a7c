package answering

import (
	"strings"
	"testing"

	"monotron/internal/exitcode"
	"monotron/megatron/inference"
	"monotron/megatron/plan"
)

// Claim: blocks are as many as the flag says, without it as --max-num-seqs texts need within 1 GiB and
// what is free; what memory has no space for is refused, for all ranks that share it.
func TestBlocksFitMemory(t *testing.T) {
	const mib = 1 << 20
	for name, c := range map[string]struct {
		cache, free int64 // MiB
		sharers     int
		blocks      int
		refused     string
	}{
		"all texts":           {0, 4096, 1, 4 * 64, ""},
		"as much as is free":  {0, 100, 1, 100, ""},
		"two ranks share it":  {0, 200, 2, 100, ""},
		"not even one text":   {0, 63, 1, 0, "one sequence of 1024 positions on 1 ranks need 64.0 MiB, but 63.0 MiB is free here"},
		"as told":             {10, 4096, 1, 10, ""},
		"as told, to the end": {10, 20, 2, 10, ""},
		"too much":            {101, 100, 1, 0, "--kv-cache-memory 101: keys and values of 1 ranks need 101.0 MiB, but 100.0 MiB is free here; use at most --kv-cache-memory 100"},
		"too much for two":    {60, 100, 2, 0, "use at most --kv-cache-memory 50"},
	} {
		got, err := Batching(inference.BatcherConfig{Sequences: 4, Tokens: 64}, c.cache*mib, 1024, mib, plan.Capacity{Bytes: c.free * mib, Of: "free here"}, c.sharers)
		switch {
		case c.refused == "" && (err != nil || got.Blocks != c.blocks):
			t.Errorf("%s: %d blocks, %v; want %d", name, got.Blocks, err, c.blocks)
		case c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused) || exitcode.CodeOf(err) != exitcode.Usage):
			t.Errorf("%s: %v; want %q", name, err, c.refused)
		}
	}
}
