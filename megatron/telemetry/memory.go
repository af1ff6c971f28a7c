package telemetry

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
)

// Memory is the state of a device's memory, in bytes.
type Memory struct {
	Allocated, MaxAllocated, Reserved, MaxReserved int64
	Allocations                                    int64 // live blocks
	Planned                                        int64 // that MaxAllocated was to be; 0: nobody planned
}

// line is Megatron's memory line.
func (m *Memory) line(rank, iteration int) string {
	mb := func(bytes int64) string { return fixed(float64(bytes)/(1<<20), 2) }
	return fmt.Sprintf("[Rank %d] (after %d iterations) memory (MB) | allocated: %s | max allocated: %s | reserved: %s | max reserved: %s",
		rank, iteration, mb(m.Allocated), mb(m.MaxAllocated), mb(m.Reserved), mb(m.MaxReserved))
}

// tableRanks is how many ranks a memory table lists one by one.
const tableRanks = 16

// RankMemory is the most bytes a rank allocated, by purpose, and at any one time.
type RankMemory struct {
	Rank      string // "3 (tp 1, pp 1, dp 0)"
	ByPurpose []float64
	AtOnce    float64
}

// Usage is what ranks hold for which purpose.
type Usage struct {
	Purposes []string
	Ranks    []RankMemory
}

// table is the text of --log-memory, in MiB: a row a rank, of many ranks those with the most.
func (u *Usage) table() string {
	var b strings.Builder
	fmt.Fprintln(&b, "memory by purpose, peak so far (MiB):")
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(t, "  rank\t")
	for _, name := range u.Purposes {
		fmt.Fprint(t, name, "\t")
	}
	fmt.Fprint(t, "at once\t\n")
	for _, r := range largest(u.Ranks) {
		fmt.Fprintf(t, "  %s\t", r.Rank)
		for _, bytes := range r.ByPurpose {
			fmt.Fprintf(t, "%.2f\t", bytes/(1<<20))
		}
		fmt.Fprintf(t, "%.2f\t\n", r.AtOnce/(1<<20))
	}
	_ = t.Flush() // to a strings.Builder
	if rest := len(u.Ranks) - tableRanks; rest > 0 {
		fmt.Fprintf(&b, "  and %d ranks with less\n", rest)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// largest keeps the order of ranks where all fit.
func largest(ranks []RankMemory) []RankMemory {
	if len(ranks) <= tableRanks {
		return ranks
	}
	sorted := slices.Clone(ranks)
	slices.SortStableFunc(sorted, func(a, b RankMemory) int { return cmp.Compare(b.AtOnce, a.AtOnce) })
	return sorted[:tableRanks]
}
