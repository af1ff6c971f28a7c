package device

// ScoreRule is what becomes of scale·q·k before ALiBi and the softmax.
type ScoreRule int32

const (
	PlainScores  ScoreRule = iota
	CappedScores           // Cap·tanh(score/Cap) (Gemma 2)
)

// AttentionForwardArgs: O = softmax(scale·QKᵀ + slope·(k−q))·V, never storing
// scores. Q, O [sq·b, groups, heads per group, d]; K, V [sk·b, groups, 1, d],
// value dtype, any strides on the first three dimensions; LSE f32 [b, heads, sq]
// = log of the softmax's denominator. Query i stands at position QOffset+i, key j
// at KOffset+j, not behind the first query; a query sees the keys that are here
// from max(DocStart, position−Window, ⌊position/Chunk⌋·Chunk) to its own position. One that sees none has
// O 0 and LSE −inf. O may be f32 where Q, K, V are not: then it is a part of an
// attention whose other keys are in other calls, for AttentionMerge.
//
//op:attention_forward
type AttentionForwardArgs struct {
	O        Tensor `dtype:"value|f32"`
	Q, K, V  Tensor `dtype:"value"`
	LSE      Tensor `dtype:"f32"`
	DocStart Tensor `dtype:"i32"` // [b, sq], rows any distance apart; none: 0
	// [heads]: of ALiBi; or [heads, positions]: what is added to a head's score of the key at a position;
	// none: nothing.
	Slopes  Tensor  `dtype:"f32"`
	Drop    Dropout // of queries from Drop.Position on; keys count as their positions
	Batch   int32
	QOffset int32
	KOffset int32
	Window  int32 // keys to the left; -1: all
	Chunk   int32 // a query sees keys whose positions have its own quotient by it (Llama 4); 0: all
	Scale   float32
	Cap     float32 // with CappedScores
	Rule    ScoreRule
}

func (a *AttentionForwardArgs) check() bool {
	b := int64(a.Batch)
	if b <= 0 || a.Q.Rank != 4 || a.K.Rank != 4 || a.Q.Shape[0]%b != 0 || a.K.Shape[0]%b != 0 {
		return false
	}
	sq, heads := a.Q.Shape[0]/b, a.Q.Shape[1]*a.Q.Shape[2]
	return same(a.O, a.Q) && same(a.V, a.K) && a.K.Shape[1] == a.Q.Shape[1] && a.K.Shape[2] == 1 && a.K.Last() == a.Q.Last() &&
		shaped(a.LSE, b, heads, sq) && optional(a.DocStart, b, sq) && slopesFit(a.Slopes, heads, int64(a.KOffset)+a.K.Shape[0]/b) && a.KOffset >= 0 && a.QOffset >= a.KOffset
}

// slopesFit reports whether slopes are ALiBi's of so many heads, or a table of all positions.
func slopesFit(slopes Tensor, heads, positions int64) bool {
	if slopes.Rank == 2 {
		return slopes.Shape[0] == heads && slopes.Shape[1] >= positions
	}
	return optional(slopes, heads)
}

func (a *AttentionForwardArgs) main() Tensor { return a.Q }

func (a *AttentionForwardArgs) describe() string { return a.Drop.of(a.Q) }

func (a *AttentionForwardArgs) work() Work { return Work{4 * a.scores(), size(a.Q, a.K, a.V, a.O)} }

// AttentionBackwardArgs: DQ, DK, DV (=, shapes and freedom of strides of Q, K,
// V; f32 where they are parts of sums) from DO and what forward saw and made.
// Where the keys are a part of those of the attention, Forward has O and LSE of
// all of them.
//
//op:attention_backward
type AttentionBackwardArgs struct {
	DQ, DK, DV Tensor `dtype:"value|f32"`
	DO         Tensor `dtype:"value"`
	Forward    AttentionForwardArgs
}

func (a *AttentionBackwardArgs) check() bool {
	f := &a.Forward
	return f.check() && f.O.DType == a.DO.DType && same(a.DQ, f.Q) && same(a.DK, f.K) && same(a.DV, f.V) && same(a.DO, f.O)
}

func (a *AttentionBackwardArgs) main() Tensor { return a.Forward.Q }

func (a *AttentionBackwardArgs) describe() string { return a.Forward.describe() }

func (a *AttentionBackwardArgs) work() Work {
	f := &a.Forward
	return Work{10 * f.scores(), size(f.Q, f.K, f.V, f.O, a.DO, a.DQ, a.DK, a.DV)}
}

// scores is what a causal mask leaves of the square of scores times the
// channels: one product of attention in multiply-adds.
func (a *AttentionForwardArgs) scores() float64 {
	keys := float64(a.K.Shape[0]) / float64(max(1, a.Batch))
	queries := float64(a.Q.Shape[0]) / float64(max(1, a.Batch))
	first, last := float64(a.QOffset-a.KOffset), float64(a.QOffset-a.KOffset)+queries // keys that they see
	if last <= keys {
		return float64(a.Q.Len()) * (first + last) / 2
	}
	all := min(queries, last-keys) // queries that see all keys
	return float64(a.Q.Len()) * (all*keys + (queries-all)*(first+keys)/2) / queries
}

// AttentionMergeArgs joins two attentions of the same queries to different keys: with
// w = e^(PartLSE−log(e^LSE+e^PartLSE)), O = O + w·(Part−O) and LSE = log(e^LSE+e^PartLSE).
// O, Part f32 [sq·b, heads, d], LSE, PartLSE f32 [b, heads, sq], contiguous; a LSE of −inf
// is an attention to no keys.
//
//op:attention_merge
type AttentionMergeArgs struct {
	O, Part, LSE, PartLSE Tensor `dtype:"f32"`
}

func (a *AttentionMergeArgs) check() bool {
	fits := a.O.Rank == 3 && a.LSE.Rank == 3 && a.O.Shape[0] == a.LSE.Shape[0]*a.LSE.Shape[2] && a.O.Shape[1] == a.LSE.Shape[1] && same(a.Part, a.O) && same(a.PartLSE, a.LSE)
	for _, t := range []Tensor{a.O, a.Part, a.LSE, a.PartLSE} {
		fits = fits && t.Contiguous()
	}
	return fits
}

func (a *AttentionMergeArgs) main() Tensor { return a.O }

func (a *AttentionMergeArgs) work() Work { return streamed(a.O, a.O, a.Part) }
