package device

// Op numbers an entry of the kernel table; device.h has the same list.
type Op int32

const (
	OpMatmul Op = iota
	OpNormForward
	OpNormBackward
	OpActivationForward
	OpActivationBackward
	OpRope
	OpAttentionForward
	OpAttentionBackward
	OpEmbeddingForward
	OpEmbeddingBackward
	OpCrossEntropyStats
	OpCrossEntropyLoss
	OpCrossEntropyGrad
	OpDropoutAdd
	OpDropoutBackward
	OpColumnSum
	OpAdd
	OpCopy
	OpFill
	OpUniform
	OpGradStats
	OpWeightedSum
	OpGradScale
	OpAdamW
	OpSGD
	Ops
)

var opNames = [Ops]string{
	"matmul", "norm_forward", "norm_backward", "activation_forward", "activation_backward", "rope",
	"attention_forward", "attention_backward", "embedding_forward", "embedding_backward",
	"cross_entropy_stats", "cross_entropy_loss", "cross_entropy_grad", "dropout_add", "dropout_backward",
	"column_sum", "add", "copy", "fill", "uniform", "grad_stats", "weighted_sum", "grad_scale", "adamw", "sgd",
}

func (o Op) String() string { return opNames[o] }

// "value dtype" below: F32, BF16 or F16 (F64 too on ref), the same for all
// tensors of a call so marked. Last dimensions are contiguous (stride 1).
// "tokens" is a flattened [s, b]: row i*b+j is position i of sample j.

// Epilogue is what follows a matmul.
type Epilogue int32

const (
	NoEpilogue       Epilogue = iota // C = AB (+ bias where given)
	GeluTanhEpilogue                 // Aux = AB + bias, C = gelu(Aux)
	GeluErfEpilogue
)

// MatmulArgs: C = op(A)·op(B) + bias, then the epilogue; with Accumulate
// C += op(A)·op(B) (no bias, no epilogue; C f32: main gradients).
// op(A) [m,k], op(B) [k,n], both of one value dtype; C [m,n] of that dtype or
// f32; Bias [n] and Aux [m,n] of the value dtype of A. Sums in f32.
type MatmulArgs struct {
	C, A, B    Tensor
	Bias, Aux  Tensor
	TransA     int32 // A is stored [k,m]
	TransB     int32 // B is stored [n,k]
	Accumulate int32
	Epilogue   Epilogue
}

// NormKind chooses between LayerNorm and RMSNorm.
type NormKind int32

const (
	LayerNormKind NormKind = iota
	RMSNormKind
)

// NormForwardArgs: Y = norm(X)·Gamma + Beta over the last dimension, eps inside
// the root. X, Y [.., h] value dtype, any row strides; Gamma, Beta [h] value
// dtype (Beta none for RMSNorm); Mean (LayerNorm only), Rstd f32 [rows].
type NormForwardArgs struct {
	Y, X, Gamma, Beta Tensor
	Mean, Rstd        Tensor
	Eps               float32
	Kind              NormKind
	OnePlus           int32 // weights act as Gamma+1
	_                 int32
}

// NormBackwardArgs: DX = d norm + Residual (where given);
// DGamma, DBeta f32 [h] += . Other shapes as forward.
type NormBackwardArgs struct {
	DX, DGamma, DBeta Tensor
	DY, X, Gamma      Tensor
	Mean, Rstd        Tensor
	Residual          Tensor
	Kind              NormKind
	OnePlus           int32
}

// Activation is the MLP's non-linearity.
type Activation int32

const (
	GeluTanh Activation = iota
	GeluErf
	SquaredRelu
	Swiglu     // silu(first half)·second half
	QuickGeglu // x·sigmoid(1.702x) of the first half · second half
)

// Gated tells whether X is twice as wide as Y.
func (a Activation) Gated() bool { return a == Swiglu || a == QuickGeglu }

// ActivationForwardArgs: Y [rows,F] = act(X), X [rows,F], gated [rows,2F].
type ActivationForwardArgs struct {
	Y, X Tensor
	Kind Activation
	_    int32
}

// ActivationBackwardArgs: DX (shape of X; may alias X) = DY [rows,F] · act'(X).
type ActivationBackwardArgs struct {
	DX, DY, X Tensor
	Kind      Activation
	_         int32
}

// RopeArgs rotates X [tokens, groups, heads per group, d] in place by the
// angles of Positions i32 [tokens]: Cos, Sin f32 [positions, RotDims/2].
// Pairs are (i, i+RotDims/2), interleaved (2i, 2i+1); channels from RotDims on
// pass. Inverse rotates back, which is the gradient.
type RopeArgs struct {
	X, Cos, Sin, Positions Tensor
	RotDims                int32
	Interleaved            int32
	Inverse                int32
	_                      int32
}

// Dropout names the random numbers of a mask. Element (position, sample,
// head, channel) is dropped when its 32-bit word is below Rate·2^32; the word is
// Philox4x32-10 with key StepKey(Stream, *Step) and counter
// (channel/4, position, sample, head), word channel%4. Kept values are divided by
// 1-Rate. So a mask depends on no layout, and backward draws it again.
type Dropout struct {
	Stream   uint64 // StreamKey(seed, name with the global layer)
	Step     Tensor // i64 [1]
	Samples  Tensor // i32 [b]: each column's sample number in the global batch
	Rate     float32
	Position int32 // of the first row
	Channel  int32 // of the first channel; of the first head in attention
	_        int32
}

// AttentionForwardArgs: O = softmax(scale·QKᵀ + slope·(k−q))·V, never storing
// scores. Q, O [sq·b, groups, heads per group, d]; K, V [sk·b, groups, 1, d],
// value dtype, any strides on the first three dimensions; LSE f32 [b, heads, sq]
// = log of the softmax's denominator. Query i stands at position QOffset+i and
// sees keys from max(DocStart, position−Window) to its own position.
type AttentionForwardArgs struct {
	O, Q, K, V Tensor
	LSE        Tensor
	DocStart   Tensor // i32 [b, sq], none: 0
	Slopes     Tensor // f32 [heads], none: no ALiBi
	Drop       Dropout
	Batch      int32
	QOffset    int32
	Window     int32 // keys to the left; -1: all
	Scale      float32
}

// AttentionBackwardArgs: DQ, DK, DV (=, shapes and freedom of strides of Q, K,
// V) from DO and what forward saw and made.
type AttentionBackwardArgs struct {
	DQ, DK, DV, DO Tensor
	Forward        AttentionForwardArgs
}

// EmbeddingForwardArgs: Out [tokens,h] (+)= Table[IDs−Start], zero for ids
// outside the table (another rank's rows). IDs i32 [tokens].
type EmbeddingForwardArgs struct {
	Out, Table, IDs Tensor
	Start           int64
	Accumulate      int32
	_               int32
}

// EmbeddingBackwardArgs: DTable f32 [rows,h] [IDs−Start] += DOut, summed in
// token order.
type EmbeddingBackwardArgs struct {
	DTable, DOut, IDs Tensor
	Start             int64
}

// CrossEntropyStatsArgs, a chunk of rows: Max = max over the first Columns
// logits, Sum = Σ exp(x−Max), Target = x[Label−Start] (0 where another rank has
// it). Logits f32 [rows,V]; Labels i32 [rows]; Max, Sum, Target f32 [rows].
type CrossEntropyStatsArgs struct {
	Logits, Labels   Tensor
	Max, Sum, Target Tensor
	Start            int64
	Columns          int64 // that count; the rest is padding
}

// CrossEntropyLossArgs: Loss = log(Sum)+Max−Target, all f32 [rows].
type CrossEntropyLossArgs struct {
	Loss, Max, Sum, Target Tensor
}

// CrossEntropyGradArgs: D [rows,V] (value dtype; may alias Logits when f32) =
// (exp(x−Max)/Sum − [column = label])·Weight[row]·*Scale, 0 in padding.
// Weight f32 [rows]; Scale f32 [1]: the loss scale, none: 1.
type CrossEntropyGradArgs struct {
	D, Logits, Labels Tensor
	Max, Sum          Tensor
	Weight, Scale     Tensor
	Start             int64
	Columns           int64
}

// DropoutAddArgs: Out = Residual + drop(X + Bias), all [tokens,h]; Bias [h] and
// Residual may be none; Out may alias X or Residual. Rate 0: no dropping.
type DropoutAddArgs struct {
	Out, X, Bias, Residual Tensor
	Drop                   Dropout
}

// DropoutBackwardArgs: DX = mask·DY/(1−Rate); DX may alias DY.
type DropoutBackwardArgs struct {
	DX, DY Tensor
	Drop   Dropout
}

// ColumnSumArgs: Out f32 [n] += Σ_rows X [rows,n]: bias gradients.
type ColumnSumArgs struct{ Out, X Tensor }

// AddArgs: Out = A + B, equal shapes, contiguous; dtypes may differ; may alias.
type AddArgs struct{ Out, A, B Tensor }

// CopyArgs: Dst = Src, equal shapes, any strides, converted to Dst's dtype
// (round to nearest even).
type CopyArgs struct{ Dst, Src Tensor }

// FillArgs: every element of Out (contiguous) = Value.
type FillArgs struct {
	Out   Tensor
	Value float64
}

// UniformArgs: element i of Out f32 = word i of the stream / 2^32, in [0,1);
// word i is Philox(StepKey(Stream, *Step), (i/4 low, i/4 high, 0, 0))[i%4], its
// top 24 bits taken.
type UniformArgs struct {
	Out, Step Tensor
	Stream    uint64
}

// Places in the f64 [3] of GradStatsArgs.
const (
	StatSquares   = iota // Σ x² over finite and non-finite alike
	StatNonFinite        // count of inf and nan
	StatZeros            // count of exact zeros
	Stats
)

// GradStatsArgs: Out f64 [3] += the statistics of X (contiguous, any dtype).
type GradStatsArgs struct{ Out, X Tensor }

// WeightedSumArgs: Out f64 [2] += (Σ X·W, Σ W); X, W f32 [n].
type WeightedSumArgs struct{ Out, X, W Tensor }

// Places in the f32 [Hypers] that an optimizer step reads.
const (
	HyperLR          = iota // learning rate
	HyperWeightDecay        // before a group's multiplier
	HyperCorrection1        // 1−β1^t
	HyperCorrection2        // 1−β2^t
	HyperLossScale          // gradients carry this factor
	HyperGradScale          // written by GradScale: clip factor / loss scale
	HyperSkip               // written by GradScale: not 0 when a gradient is not finite
	HyperGradNorm           // written by GradScale: norm before clipping, unscaled
	Hypers
)

// GradScaleArgs turns summed statistics into the step's gradient factor:
// norm = √Squares/scale, factor = min(1, MaxNorm/(norm+1e-6))/scale (MaxNorm 0: 1/scale).
// Skip is set to NonFinite > 0.
type GradScaleArgs struct {
	Hyper, Stats Tensor // f32 [Hypers], f64 [3]
	MaxNorm      float32
	_            int32
}

// AdamWArgs (Loshchilov and Hutter, arXiv 1711.05101): g = Grad·GradScale,
// M = β1M+(1−β1)g, V = β2V+(1−β2)g², Param −= lr·(M/c1/(√(V/c2)+eps) + wd·Param).
// Param, Grad, M, V f32, equal lengths; Model, where given, receives Param in the
// value dtype. Nothing changes when Hyper says skip.
type AdamWArgs struct {
	Param, Grad, M, V Tensor
	Model, Hyper      Tensor
	Beta1, Beta2, Eps float32
	LRMult, WDMult    float32
	_                 int32
}

// SGDArgs: g = Grad·GradScale + wd·Param, Momentum = μ·Momentum + g (the buffer
// may be none when Mu is 0), Param −= lr·Momentum; as torch.optim.SGD.
type SGDArgs struct {
	Param, Grad, Momentum Tensor
	Model, Hyper          Tensor
	Mu                    float32
	LRMult, WDMult        float32
	_                     int32
}
