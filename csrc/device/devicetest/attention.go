package devicetest

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"monotron/csrc/device"
	"monotron/csrc/ref"
)

// attentionShape: sq queries of groups x heads, at the positions from offset on of
// sk keys.
type attentionShape struct {
	batch, sq, sk, offset, groups, heads, d int64
}

type attentionOptions struct {
	window     int32 // -1: all
	alibi, doc bool
	rate       float32
	loud       bool // large scores: the softmax must subtract its maximum
	chunk      int32
	limit      float32 // of capped scores; 0: plain
	sinks      bool    // of paged attention
	table      bool    // what is added to scores is a table of positions

	keysAt int64 // position of the first key; queries count from it too
	part   bool  // the keys are a part of those of the attention: f32 results
}

func (o attentionOptions) String() string {
	// Only what is not the default: the string is part of the case's name.
	s := ""
	if o.window >= 0 {
		s += fmt.Sprintf(" window %d", o.window)
	}
	if o.alibi {
		s += " alibi"
	}
	if o.doc {
		s += " documents"
	}
	if o.rate > 0 {
		s += fmt.Sprintf(" dropout %g", o.rate)
	}
	if o.loud {
		s += " loud"
	}
	if o.chunk > 0 {
		s += fmt.Sprintf(" chunks of %d", o.chunk)
	}
	if o.limit > 0 {
		s += fmt.Sprintf(" capped at %g", o.limit)
	}
	if o.sinks {
		s += " sinks"
	}
	if o.table {
		s += " biased"
	}
	if o.part {
		s += fmt.Sprintf(" part from %d", o.keysAt)
	}
	return s
}

// square is causal self-attention over s positions.
func square(batch, s, groups, heads, d int64) attentionShape {
	return attentionShape{batch, s, s, 0, groups, heads, d}
}

func attentionCases() []Case {
	var cases []Case
	both := func(d device.DType, s attentionShape, o attentionOptions) {
		cases = append(cases, attentionForwardCase(d, s, o), attentionBackwardCase(d, s, o))
	}
	plain := attentionOptions{window: -1}
	for _, d := range valueTypes {
		for _, s := range []attentionShape{
			square(1, 1, 1, 1, 4), square(2, 5, 1, 3, 8), square(1, 17, 2, 2, 16), square(3, 65, 2, 1, 64), square(1, 129, 1, 2, 64), square(2, 63, 3, 1, 5),
			square(2, 64, 1, 4, 20), square(1, 70, 1, 2, 80), square(1, 40, 1, 1, 128), square(1, 33, 1, 1, 256), square(1, 300, 2, 2, 32),
			{2, 3, 50, 40, 2, 2, 16}, {1, 1, 200, 100, 1, 4, 64}, {1, 70, 140, 65, 1, 1, 32}, {3, 1, 1, 0, 1, 2, 8},
		} {
			both(d, s, plain)
		}
		masks := square(2, 70, 2, 2, 32)
		for _, o := range []attentionOptions{
			{window: 0}, {window: 1}, {window: 7}, {window: 64}, {window: 100}, {window: -1, alibi: true}, {window: -1, doc: true}, {window: 9, doc: true},
			{window: -1, rate: 0.1}, {window: -1, rate: 0.5}, {window: -1, loud: true}, {window: 20, alibi: true, doc: true, rate: 0.2},
			{window: -1, chunk: 1}, {window: -1, chunk: 9}, {window: 5, chunk: 16, doc: true},
		} {
			both(d, masks, o)
		}
		both(d, attentionShape{2, 6, 90, 70, 1, 3, 24}, attentionOptions{window: 33, alibi: true, doc: true})
		both(d, square(1, 200, 1, 2, 64), attentionOptions{window: 30, alibi: true, rate: 0.1})
		both(d, square(1, 70, 1, 2, 200), attentionOptions{window: -1, rate: 0.3})
		long := square(1, 1100, 1, 2, 8) // more queries than a device keeps at a time
		both(d, long, plain)
		both(d, long, attentionOptions{window: 300, alibi: true, doc: true, rate: 0.2})
		cases = append(cases, attentionMaskCase(d))
		cases = append(cases, hostAttentionCases(d)...)
		if d == device.BF16 { // so many heads that a GPU, of 150 processors at most, takes blocks of twice the queries
			cases = append(cases, attentionForwardCase(d, square(10, 65, 2, 15, 8), plain), attentionForwardCase(d, square(10, 65, 2, 15, 72), plain))
		}
		for _, s := range []attentionShape{
			square(2, 70, 2, 2, 32), {1, 70, 64, 64, 1, 2, 32}, {2, 40, 130, 130, 1, 2, 64}, {1, 3, 65, 400, 2, 1, 16}, {1, 130, 40, 20, 1, 2, 64}, {1, 6, 6, 6, 2, 2, 80},
		} {
			for _, o := range []attentionOptions{
				{window: -1}, {window: 50}, {window: 3, rate: 0.3, keysAt: 2}, {window: -1, doc: true, keysAt: 66}, {window: 90, alibi: true, doc: true, rate: 0.2, keysAt: 7},
				{window: -1, chunk: 20, keysAt: 66},
			} {
				o.part = true
				both(d, s, o)
			}
		}
	}
	for _, s := range []attentionShape{square(1, 1, 1, 1, 4), square(2, 70, 2, 2, 33), square(1, 300, 1, 4, 64)} {
		cases = append(cases, attentionMergeCase(s))
	}
	return cases
}

// hostAttentionCases are capped scores and tables that are added to scores, which GPUs refuse.
func hostAttentionCases(d device.DType) (cases []Case) {
	masks := square(2, 70, 2, 2, 32)
	for _, o := range []attentionOptions{
		{window: -1, limit: 0.7}, {window: 9, limit: 2, doc: true}, {window: -1, limit: 30, loud: true}, {window: -1, table: true}, {window: 20, table: true, limit: 1.5, rate: 0.2, alibi: false},
	} {
		cases = append(cases, attentionForwardCase(d, masks, o), attentionBackwardCase(d, masks, o))
		o.part, o.keysAt = true, 7
		part := attentionShape{1, 130, 40, 20, 1, 2, 64}
		cases = append(cases, attentionForwardCase(d, part, o), attentionBackwardCase(d, part, o))
	}
	return cases
}

// attentionInputs makes Q, K and V inside one buffer as the model does for
// square shapes, and apart with a longer K (a cache) otherwise. Cache positions
// that no query sees hold NaN: they must never be read.
func attentionInputs(e *Env, d device.DType, s attentionShape, o attentionOptions) device.AttentionForwardArgs {
	a := device.AttentionForwardArgs{Batch: int32(s.batch), QOffset: int32(o.keysAt + s.offset), KOffset: int32(o.keysAt), Window: o.window, Chunk: o.chunk, Scale: float32(1 / math.Sqrt(float64(s.d)))}
	if o.limit > 0 {
		a.Rule, a.Cap = device.CappedScores, o.limit
	}
	// Scores far apart: a softmax that does not subtract the maximum overflows.
	if o.loud {
		a.Scale *= 40
	}
	// qkv: [sq·b, groups·(heads+2)·d]; apart: Q [sq·b, groups, heads, d], K and V [sk·b, groups, 1, d].
	if s.sq == s.sk {
		qkv := e.In("QKV", d, s.sq*s.batch, s.groups*(s.heads+2)*s.d)
		a.Q, a.K, a.V = splitHeads(qkv, s.groups, s.heads, s.d)
	} else {
		a.Q = e.In("Q", d, s.sq*s.batch, s.groups, s.heads, s.d)
		seen := int((s.offset + s.sq) * s.batch * s.groups * s.d)
		cache := func(i int) float64 {
			if i >= seen {
				return math.NaN()
			}
			return e.unit()
		}
		a.K = e.Make("K", d, cache, s.sk*s.batch, s.groups, 1, s.d)
		a.V = e.Make("V", d, cache, s.sk*s.batch, s.groups, 1, s.d)
	}
	// Documents, biases of heads or of heads and keys, dropout.
	if o.doc {
		a.DocStart = e.documents(s, o.keysAt)
	}
	if o.alibi {
		a.Slopes = e.Make("slopes", device.F32, func(i int) float64 { return math.Pow(2, -float64(i+1)) }, s.groups*s.heads)
	}
	if o.table {
		a.Slopes = e.In("biases", device.F32, s.groups*s.heads, o.keysAt+s.sk+3)
	}
	a.Drop = e.dropout(o.rate, s.batch, a.QOffset, 3)
	return a
}

// documents: each position's first visible key; documents of 1 to 20 tokens. Rows lie
// farther apart than they are long, as those of a stretch of a sample do.
func (e *Env) documents(s attentionShape, keysAt int64) device.Tensor {
	end, first := keysAt+s.offset+s.sq, keysAt+s.offset
	starts := make([]float64, 0, s.batch*s.sq)
	for range s.batch {
		start, next := int64(0), int64(0)
		for at := range end {
			if at == next {
				start, next = at, at+1+e.below(20)
			}
			if at >= first {
				starts = append(starts, float64(start))
			}
		}
	}
	const apart = 3
	row := int(s.sq) + apart
	return e.Make("DocStart", device.I32, func(i int) float64 { return starts[i/row*int(s.sq)+min(i%row, int(s.sq)-1)] }, s.batch, s.sq+apart).Slice(1, 0, s.sq)
}

// attentionTol: a score is a sum of d terms, its size up to `size` and so its
// error relative to p; an output is a mean of up to sk values of size 1 at most 2.
// A kernel may keep p in the value dtype for its second product.
func attentionTol(d device.DType, s attentionShape, o attentionOptions, terms int64) Tol {
	size := 8.0
	if o.loud {
		size *= 40
	}
	if o.rate > 0 {
		size *= 2 // 1/(1−rate)
	}
	t := tol(d, s.d+terms, size)
	if d != device.F32 {
		t = t.rounded(d, 2)
	}
	return t
}

func attentionForwardCase(d device.DType, s attentionShape, o attentionOptions) Case {
	setup := func(e *Env) func() {
		a := attentionInputs(e, d, s, o)
		e.attentionOutputs(&a, d, s, o)
		e.fuse(device.AttentionBackwardArgs{Forward: a})
		return func() { e.Dev.AttentionForward(a) }
	}
	return Case{device.OpAttentionForward, attentionName(d, s, o), setup, attentionWork(d, s, 2)}
}

func (e *Env) attentionOutputs(a *device.AttentionForwardArgs, d device.DType, s attentionShape, o attentionOptions) {
	out := d
	if o.part {
		out = device.F32
	}
	a.O = e.Out("O", attentionTol(d, s, o, s.sk), out, s.sq*s.batch, s.groups, s.heads, s.d)
	a.LSE = e.Out("LSE", attentionTol(device.F32, s, o, s.sk), device.F32, s.batch, s.groups*s.heads, s.sq)
}

func attentionBackwardCase(d device.DType, s attentionShape, o attentionOptions) Case {
	setup := func(e *Env) func() {
		a := device.AttentionBackwardArgs{Forward: attentionInputs(e, d, s, o)}
		e.attentionForward(&a.Forward, d, s, o)
		a.DO = e.In("DO", d, s.sq*s.batch, s.groups, s.heads, s.d)
		t := attentionTol(d, s, o, s.sk*s.heads)
		if o.loud && d != device.F32 {
			t = t.rounded(d, 2*40) // a kernel may keep p·(dP−D) in the value dtype; the scale comes after it
		}
		grads := d
		if o.part {
			grads = device.F32
		}
		if s.sq == s.sk && !o.part {
			a.DQ, a.DK, a.DV = splitHeads(e.Out("DQKV", t, d, s.sq*s.batch, s.groups*(s.heads+2)*s.d), s.groups, s.heads, s.d)
		} else {
			a.DQ = e.Out("DQ", t, grads, s.sq*s.batch, s.groups, s.heads, s.d)
			a.DK, a.DV = e.Out("DK", t, grads, s.sk*s.batch, s.groups, 1, s.d), e.Out("DV", t, grads, s.sk*s.batch, s.groups, 1, s.d)
		}
		e.fuse(a)
		return func() { e.Dev.AttentionBackward(a) }
	}
	return Case{device.OpAttentionBackward, attentionName(d, s, o), setup, attentionWork(d, s, 5)}
}

// FuseVariable, where it is "fused", makes the cases and the bench ask for the vendor's
// attention (cuDNN) before they call; a case that it refuses runs in the device's own kernels.
const FuseVariable = "MONOTRON_ATTENTION"

func (e *Env) fuse(like device.AttentionBackwardArgs) {
	if os.Getenv(FuseVariable) == "fused" && e.Dev != e.oracle {
		e.refused = e.Dev.FuseAttention(like, math.MaxInt64)
	}
}

var errNotAsked = errors.New("the vendor's attention was not requested")

// Fused compares the attention cases that the vendor's library takes with ref; the others
// are skipped with its reason. It returns how many it took.
func Fused(t *testing.T, dev *device.Device) (taken int) {
	t.Setenv(FuseVariable, "fused")
	oracle := ref.Open()
	defer oracle.Close()
	for _, c := range sharedOf(t, attentionCases()) {
		t.Run(c.Op.String()+"/"+strings.ReplaceAll(c.Name, " ", "_"), func(t *testing.T) {
			e := newEnv(dev, oracle, fmt.Sprint(c.Op, c.Name))
			c.Setup(e)
			e.scope.Release()
			if e.refused != nil {
				t.Skip(e.refused)
			}
			taken++
			compareWithRef(t, c, dev, oracle)
		})
	}
	return taken
}

// attentionMergeCase: parts of nearly equal and of very different weight, and of none.
func attentionMergeCase(s attentionShape) Case {
	heads, rows := s.groups*s.heads, s.sq*s.batch
	return Case{Op: device.OpAttentionMerge, Name: fmt.Sprintf("%dx%d %d heads of %d", s.batch, s.sq, heads, s.d), Setup: func(e *Env) func() {
		a := device.AttentionMergeArgs{Part: e.In("Part", device.F32, rows, heads, s.d)}
		a.PartLSE = e.Make("PartLSE", device.F32, func(i int) float64 {
			switch i % 5 {
			case 0:
				return math.Inf(-1)
			case 1:
				return 200 * e.unit()
			}
			return 3 * e.unit()
		}, s.batch, heads, s.sq)
		a.LSE = e.Changes(e.Make("LSE", device.F32, func(i int) float64 {
			if i%7 == 1 {
				return math.Inf(-1)
			}
			return 4 * e.unit()
		}, s.batch, heads, s.sq), tol(device.F32, 1, 8))
		a.O = e.Changes(e.In("O", device.F32, rows, heads, s.d), tol(device.F32, 4, 8))
		return func() { e.Dev.AttentionMerge(a) }
	}, Work: Work{Bytes: float64(12 * rows * heads * s.d)}}
}

// attentionForward makes the O and LSE that the oracle's forward gives, in the value dtype.
func (e *Env) attentionForward(a *device.AttentionForwardArgs, d device.DType, s attentionShape, o attentionOptions) {
	o.part = false
	twin := e.twin()
	defer twin.scope.Release()
	b := attentionInputs(twin, d, s, o)
	twin.attentionOutputs(&b, d, s, o)
	twin.Dev.AttentionForward(b)
	a.O, a.LSE = e.From(twin, "O", b.O), e.From(twin, "LSE", b.LSE)
}

// attentionMaskCase: 16 keys whose values are the unit vectors, so that an
// output is the row of dropped probabilities and its zeros are the mask.
func attentionMaskCase(d device.DType) Case {
	const s, batch, heads = 16, 3, 2
	return Case{Op: device.OpAttentionForward, Name: d.String() + " mask", Setup: func(e *Env) func() {
		a := device.AttentionForwardArgs{Batch: batch, Window: -1, Scale: 0.25, Drop: e.dropout(0.3, batch, 1000, 6)}
		a.Q, a.K = e.In("Q", d, s*batch, 1, heads, s), e.In("K", d, s*batch, 1, 1, s)
		a.V = e.Make("V", d, func(i int) float64 {
			if i/s/batch == i%s {
				return 1
			}
			return 0
		}, s*batch, 1, 1, s)
		a.O = e.Out("O", tol(d, s, 2).rounded(d, 1).masked(), d, s*batch, 1, heads, s)
		a.LSE = e.Out("LSE", tol(device.F32, s, 4), device.F32, batch, heads, s)
		return func() { e.Dev.AttentionForward(a) }
	}}
}

func attentionName(d device.DType, s attentionShape, o attentionOptions) string {
	where := fmt.Sprintf("%d", s.sq)
	if s.sq != s.sk {
		where = fmt.Sprintf("%d at %d of %d", s.sq, s.offset, s.sk)
	}
	return fmt.Sprintf("%s %dx%s %dx%d heads of %d%s", d, s.batch, where, s.groups, s.heads, s.d, o)
}

// attentionWork: `products` of the causal half of sq x sk by d.
func attentionWork(d device.DType, s attentionShape, products float64) Work {
	rows := float64(s.batch * s.groups * s.heads * s.sq)
	return Work{Bytes: products * 2 * rows * float64(s.d*d.Size()), FLOPs: products * 2 * rows * float64(s.sk) / 2 * float64(s.d)}
}
