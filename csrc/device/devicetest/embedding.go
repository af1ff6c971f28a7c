package devicetest

import (
	"fmt"
	"math"

	"monotron/csrc/device"
)

// embeddingShape: a table of `rows` rows from number `start` on; ids are
// 0..ids-1, so some may be of other ranks.
type embeddingShape struct{ tokens, h, rows, start, ids int64 }

func embeddingCases() []Case {
	var cases []Case
	for _, d := range valueTypes {
		for _, s := range []embeddingShape{{1, 1, 1, 0, 1}, {0, 8, 5, 0, 5}, {17, 5, 50, 0, 50}, {65, 17, 15, 20, 60}, {300, 65, 7, 0, 7}, {300, 1000, 40, 10, 60}, {5, 129, 3, 100, 50}} {
			for _, pad := range []int64{0, 3} {
				cases = append(cases, embeddingForwardCase(d, s, pad, false), embeddingForwardCase(d, s, pad, true), embeddingBackwardCase(d, s, pad))
			}
		}
		// Backward sorts ids in chunks of 2,048: two of them; ids that are all one; none that is here.
		for _, s := range []embeddingShape{{2065, 5, 50, 3, 60}, {300, 132, 2, 0, 1}, {40, 4, 3, 90, 50}} {
			cases = append(cases, embeddingBackwardCase(d, s, 0))
		}
	}
	// More than eight chunks, and rows with thousands of tokens.
	return append(cases, embeddingBackwardCase(device.F32, embeddingShape{20000, 4, 7, 1, 9}, 0))
}

func embeddingForwardCase(d device.DType, s embeddingShape, pad int64, accumulate bool) Case {
	name := embeddingName(d, s, pad)
	if accumulate {
		name += " accumulate"
	}
	setup := func(e *Env) func() {
		a := device.EmbeddingForwardArgs{Start: s.start, Accumulate: flag(accumulate), IDs: e.Ints("ids", s.ids, s.tokens)}
		a.Table = narrow(e.In("table", d, s.rows, s.h+pad), pad)
		if accumulate {
			a.Out = narrow(e.Changes(e.In("Out", d, s.tokens, s.h+pad), tol(d, 1, 1)), pad)
		} else {
			a.Out = narrow(e.Out("Out", exact, d, s.tokens, s.h+pad), pad)
		}
		return func() { e.Dev.EmbeddingForward(a) }
	}
	return Case{device.OpEmbeddingForward, name, setup, Work{Bytes: 2 * float64(s.tokens*s.h*d.Size())}}
}

func embeddingBackwardCase(d device.DType, s embeddingShape, pad int64) Case {
	setup := func(e *Env) func() {
		a := device.EmbeddingBackwardArgs{Start: s.start, IDs: e.Ints("ids", s.ids, s.tokens)}
		a.DOut = narrow(e.In("DOut", d, s.tokens, s.h+pad), pad)
		same := 1 + s.tokens/s.ids // tokens of one id, about
		t := tol(device.F32, same, math.Sqrt(float64(same))+1)
		a.DTable = narrow(e.Changes(e.In("DTable", device.F32, s.rows, s.h+pad), t), pad)
		return func() { e.Dev.EmbeddingBackward(a) }
	}
	return Case{device.OpEmbeddingBackward, embeddingName(d, s, pad), setup, Work{Bytes: float64(s.tokens * s.h * (d.Size() + 8))}}
}

func embeddingName(d device.DType, s embeddingShape, pad int64) string {
	name := fmt.Sprintf("%s %d tokens of %d from %d rows at %d", d, s.tokens, s.h, s.rows, s.start)
	if pad > 0 {
		name += " strided"
	}
	return name
}
