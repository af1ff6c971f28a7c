package devicetest

import (
	"fmt"
	"math"

	"monotron/csrc/device"
)

// pagedShape: rows of sequences, each [first position, rows of it here], of groups x heads.
type pagedShape struct {
	sequences        [][2]int64
	groups, heads, d int64
	one              bool // values are the keys
}

func pagedCases() []Case {
	var cases []Case
	plain := attentionOptions{window: -1}
	for _, d := range valueTypes {
		for _, s := range []pagedShape{
			{[][2]int64{{0, 1}}, 1, 1, 4, false}, {[][2]int64{{0, 17}}, 1, 2, 16, false}, {[][2]int64{{300, 1}, {0, 5}, {15, 1}, {16, 2}, {31, 33}}, 2, 1, 64, false},
			{[][2]int64{{7, 1}, {200, 1}, {64, 1}}, 2, 4, 20, false}, {[][2]int64{{3, 40}}, 1, 1, 80, false}, {[][2]int64{{1, 3}, {90, 1}}, 1, 3, 5, false}, {[][2]int64{{50, 9}}, 1, 1, 128, false},
			{[][2]int64{{20, 2}}, 1, 1, 256, false}, {[][2]int64{{0, 1}}, 1, 1, 4, true}, {[][2]int64{{33, 6}, {0, 3}, {90, 1}}, 1, 6, 13, true}, {[][2]int64{{50, 3}, {7, 1}}, 1, 3, 576, true},
		} {
			cases = append(cases, pagedCase(d, s, plain))
		}
		several := pagedShape{[][2]int64{{40, 20}, {0, 30}, {99, 1}}, 2, 2, 32, false}
		for _, o := range []attentionOptions{{window: 0}, {window: 1}, {window: 7}, {window: 64}, {window: -1, alibi: true}, {window: -1, loud: true}, {window: 20, alibi: true}, {window: -1, chunk: 9}} {
			cases = append(cases, pagedCase(d, several, o))
		}
		cases = append(cases, pagedCase(d, several, attentionOptions{window: -1, sinks: true}), pagedCase(d, several, attentionOptions{window: 7, sinks: true, loud: true}))
		for _, o := range []attentionOptions{{window: -1, limit: 0.7}, {window: 9, limit: 2, sinks: true}, {window: 20, table: true}} {
			cases = append(cases, pagedCase(d, several, o))
		}
	}
	return cases
}

// pagedCase gives each sequence blocks in an order of no meaning. What the cache holds
// before is what earlier rows left; positions that nobody has filled hold NaN.
func pagedCase(d device.DType, s pagedShape, o attentionOptions) Case {
	blocks, most, rows, longest := int64(0), int64(0), int64(0), int64(0)
	for _, q := range s.sequences {
		n := (q[0] + q[1] + device.PagedBlock - 1) / device.PagedBlock
		blocks, most, rows, longest = blocks+n, max(most, n), rows+q[1], max(longest, q[0]+q[1])
	}
	setup := func(e *Env) func() {
		a := device.PagedAttentionArgs{Window: o.window, Chunk: o.chunk, Scale: float32(1 / math.Sqrt(float64(s.d)))}
		if o.limit > 0 {
			a.Rule, a.Cap = device.CappedScores, o.limit
		}
		if o.table {
			a.Slopes = e.In("biases", device.F32, s.groups*s.heads, longest)
		}
		if o.loud {
			a.Scale *= 40
		}
		tables, entries, filled := make([]float64, int64(len(s.sequences))*most), make([]float64, 0, 2*rows), make([]int64, blocks)
		next := int64(0)
		for i, q := range s.sequences {
			for at := int64(0); at < q[0]+q[1]; at += device.PagedBlock {
				n := (next*7 + 3) % blocks // blocks has no factor 7 in any case above
				tables[int64(i)*most+at/device.PagedBlock] = float64(n)
				filled[n] = min(device.PagedBlock, q[0]-at)
				next++
			}
			for r := range q[1] {
				entries = append(entries, float64(i), float64(q[0]+r))
			}
		}
		a.Tables = e.Make("tables", device.I32, func(i int) float64 { return tables[i] }, int64(len(s.sequences)), most)
		a.Rows = e.Make("rows", device.I32, func(i int) float64 { return entries[i] }, rows, 2)
		qkv := e.In("QKV", d, rows, s.groups*(s.heads+2)*s.d)
		a.Q, a.K, a.V = splitHeads(qkv, s.groups, s.heads, s.d)
		sides := int64(2)
		if s.one {
			a.V, sides = device.Tensor{}, 1
		}
		a.Cache = e.Changes(e.Make("cache", d, func(i int) float64 {
			at, side := int64(i)%(device.PagedBlock*s.d), int64(i)/(device.PagedBlock*s.d)
			inside := at % device.PagedBlock // keys
			if s.one || side%2 == 1 {
				inside = at / s.d // values
			}
			if inside >= filled[side/sides/s.groups] {
				return math.NaN()
			}
			return e.unit()
		}, blocks, s.groups, sides, device.PagedBlock*s.d), Tol{})
		if o.alibi {
			a.Slopes = e.Make("slopes", device.F32, func(i int) float64 { return math.Pow(2, -float64(i+1)) }, s.groups*s.heads)
		}
		if o.sinks {
			a.Sinks = e.In("sinks", d, s.groups*s.heads)
		}
		shape := attentionShape{1, rows, longest, 0, s.groups, s.heads, s.d}
		a.O = e.Out("O", attentionTol(d, shape, o, longest), d, rows, s.groups, s.heads, s.d)
		return func() { e.Dev.PagedAttention(a) }
	}
	name := fmt.Sprintf("%s %d rows of %d sequences to %d %dx%d heads of %d%s", d, rows, len(s.sequences), longest, s.groups, s.heads, s.d, o)
	if s.one {
		name += ", values are keys"
	}
	return Case{device.OpPagedAttention, name, setup, attentionWork(d, attentionShape{1, rows, longest, 0, s.groups, s.heads, s.d}, 2)}
}
