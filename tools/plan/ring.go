package plan

import (
	"slices"

	"github.com/urfave/cli/v2"

	"monotron/internal/exitcode"
	"monotron/megatron/config"
	"monotron/mpu"
	"monotron/tools/internal/command"
)

// ring is the work of ranks that share sequences: by rank and step of --cp-comm-type p2p, the
// pairs of a query and a key that a causal mask leaves of a sequence.
type ring [][]int64

const (
	mostRanks  = 256 // that are drawn
	mostTokens = 1 << 30
)

func ringOf(c *cli.Context) (r ring, err error) {
	ranks, n := c.Int("context-parallel-size"), c.Int("seq-length")
	switch {
	case ranks == 1:
		return nil, nil
	case n%(2*ranks) != 0:
		return nil, exitcode.Errorf(exitcode.Usage, "--seq-length %d is not a multiple of %d (twice --context-parallel-size): use --seq-length %s", n, 2*ranks, config.NearestMultiples(n, 2*ranks))
	}
	all := mpu.AllPositions(int64(n))
	for rank := range ranks {
		var steps []int64
		for step := range ranks {
			steps = append(steps, all.ZigZag(rank, ranks).Pairs(all.ZigZag((rank+ranks-step)%ranks, ranks)))
		}
		r = append(r, steps)
	}
	return r, nil
}

// print writes the work of each step; ranks that are equal are written once.
func (r ring) print(out *command.Printer) {
	if r == nil {
		return
	}
	out.Printf("\n%d ranks share each sequence; pairs of a query and a key in each step of a ring:\n", len(r))
	for rank, steps := range r {
		if rank > 0 && slices.Equal(steps, r[rank-1]) {
			continue
		}
		last := rank
		for last+1 < len(r) && slices.Equal(r[last+1], steps) {
			last++
		}
		const shown = 6
		out.Printf("ranks %d to %d:", rank, last)
		for _, n := range steps[:min(shown, len(steps))] {
			out.Printf(" %d", n)
		}
		if len(steps) > shown {
			out.Printf(" ... %d", steps[len(steps)-1])
		}
		out.Printf("\n")
	}
}
