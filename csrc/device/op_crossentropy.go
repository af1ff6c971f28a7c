package device

// CrossEntropyStatsArgs, a chunk of rows: Max = max over the first Columns
// logits, Sum = Σ exp(x−Max), Target = x[Label−Start] (0 where another rank has
// it). Logits f32 [rows,V]; Labels i32 [rows]; Max, Sum, Target f32 [rows].
//
//op:cross_entropy_stats
type CrossEntropyStatsArgs struct {
	Logits           Tensor `dtype:"f32"`
	Labels           Tensor `dtype:"i32"`
	Max, Sum, Target Tensor `dtype:"f32"`
	Start            int64
	Columns          int64 // that count; the rest is padding
}

func (a *CrossEntropyStatsArgs) check() bool {
	rows := a.Logits.Shape[0]
	return a.Logits.Rank == 2 && shaped(a.Labels, rows) && shaped(a.Max, rows) && shaped(a.Sum, rows) && shaped(a.Target, rows) && a.Columns <= a.Logits.Last()
}

func (a *CrossEntropyStatsArgs) main() Tensor { return a.Logits }

func (a *CrossEntropyStatsArgs) work() Work { return streamed(a.Logits) }

// CrossEntropyLossArgs: Loss = log(Sum)+Max−Target, all f32 [rows].
//
//op:cross_entropy_loss
type CrossEntropyLossArgs struct {
	Loss, Max, Sum, Target Tensor `dtype:"f32"`
}

func (a *CrossEntropyLossArgs) check() bool {
	return same(a.Max, a.Loss) && same(a.Sum, a.Loss) && same(a.Target, a.Loss)
}

func (a *CrossEntropyLossArgs) main() Tensor { return a.Loss }

func (a *CrossEntropyLossArgs) work() Work { return Work{Bytes: 4 * size(a.Loss)} }

// CrossEntropyGradArgs: D [rows,V] (value dtype; may alias Logits when f32) =
// (exp(x−Max)/Sum − [column = label])·Weight[row]·*Scale, 0 in padding.
// Weight f32 [rows]; Scale f32 [1]: the loss scale, none: 1.
//
//op:cross_entropy_grad
type CrossEntropyGradArgs struct {
	D             Tensor `dtype:"value"`
	Logits        Tensor `dtype:"f32"`
	Labels        Tensor `dtype:"i32"`
	Max, Sum      Tensor `dtype:"f32"`
	Weight, Scale Tensor `dtype:"f32"`
	Start         int64
	Columns       int64
}

func (a *CrossEntropyGradArgs) check() bool {
	rows := a.Logits.Shape[0]
	return same(a.D, a.Logits) && shaped(a.Labels, rows) && shaped(a.Max, rows) && shaped(a.Sum, rows) && shaped(a.Weight, rows) &&
		optional(a.Scale, 1) && a.Columns <= a.Logits.Last()
}

func (a *CrossEntropyGradArgs) main() Tensor { return a.Logits }

func (a *CrossEntropyGradArgs) work() Work { return streamed(a.D, a.Logits) }
