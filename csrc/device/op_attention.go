package device

// AttentionForwardArgs: O = softmax(scale·QKᵀ + slope·(k−q))·V, never storing
// scores. Q, O [sq·b, groups, heads per group, d]; K, V [sk·b, groups, 1, d],
// value dtype, any strides on the first three dimensions; LSE f32 [b, heads, sq]
// = log of the softmax's denominator. Query i stands at position QOffset+i and
// sees keys from max(DocStart, position−Window) to its own position.
//
//op:attention_forward
type AttentionForwardArgs struct {
	O, Q, K, V Tensor `dtype:"value"`
	LSE        Tensor `dtype:"f32"`
	DocStart   Tensor `dtype:"i32"` // [b, sq], none: 0
	Slopes     Tensor `dtype:"f32"` // [heads], none: no ALiBi
	Drop       Dropout
	Batch      int32
	QOffset    int32
	Window     int32 // keys to the left; -1: all
	Scale      float32
}

func (a *AttentionForwardArgs) check() bool {
	b := int64(a.Batch)
	if b <= 0 || a.Q.Rank != 4 || a.K.Rank != 4 || a.Q.Shape[0]%b != 0 || a.K.Shape[0]%b != 0 {
		return false
	}
	sq, sk, heads := a.Q.Shape[0]/b, a.K.Shape[0]/b, a.Q.Shape[1]*a.Q.Shape[2]
	return same(a.O, a.Q) && same(a.V, a.K) && a.K.Shape[1] == a.Q.Shape[1] && a.K.Shape[2] == 1 && a.K.Last() == a.Q.Last() &&
		shaped(a.LSE, b, heads, sq) && optional(a.DocStart, b, sq) && optional(a.Slopes, heads) && int64(a.QOffset)+sq <= sk
}

func (a *AttentionForwardArgs) main() Tensor { return a.Q }

func (a *AttentionForwardArgs) work() Work { return Work{4 * a.scores(), size(a.Q, a.K, a.V, a.O)} }

// AttentionBackwardArgs: DQ, DK, DV (=, shapes and freedom of strides of Q, K,
// V) from DO and what forward saw and made.
//
//op:attention_backward
type AttentionBackwardArgs struct {
	DQ, DK, DV, DO Tensor `dtype:"value"`
	Forward        AttentionForwardArgs
}

func (a *AttentionBackwardArgs) check() bool {
	f := &a.Forward
	return f.check() && same(a.DQ, f.Q) && same(a.DK, f.K) && same(a.DV, f.V) && same(a.DO, f.O)
}

func (a *AttentionBackwardArgs) main() Tensor { return a.Forward.Q }

func (a *AttentionBackwardArgs) work() Work {
	f := &a.Forward
	return Work{10 * f.scores(), size(f.Q, f.K, f.V, f.O, a.DO, a.DQ, a.DK, a.DV)}
}

// scores is half the square of scores (what a causal mask leaves) times the
// channels: one product of attention in multiply-adds.
func (a *AttentionForwardArgs) scores() float64 {
	keys := float64(a.K.Shape[0]) / float64(max(1, a.Batch))
	queries := float64(a.Q.Shape[0]) / float64(max(1, a.Batch))
	seen := keys - queries/2 // on average, the last query sees all keys
	return float64(a.Q.Len()) * seen
}
