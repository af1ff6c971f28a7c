package device

// SampleFull is what the likeliest token weighs: weights are integers, so that they
// have the same sum in any order.
const SampleFull = 1 << 44

// SampleIDs is how many ids a row has at most: their weights add up in 64 bits.
const SampleIDs = 1<<20 - 1

// SampleArgs chooses a token for each row of logits. First its edits: x of a row's id that has (r, add)
// becomes (x > 0 ? x/r : x·r) + add, in f32; a row has an id once at most. Ids are then ranked by falling x,
// of equals the lower first, and weigh round(SampleFull·exp((x − the largest x)/temperature)), below e^−32
// nothing; csrc/device/sample.h has the formula, which all devices share to the bit. Left are the ids up to
// the first that is the top-k-th (0: all), or brings their sum to floor(top-p·the sum of the top k) (0 or 1:
// all), or weighs SampleFull·min-p the last of all (0: all), whichever weighs least. The token is the first
// that brings the sum of weights beyond floor(draw/2³²·the weight of those left). Temperature 0 takes the
// first id, and so does a row whose largest x is infinite.
//
// Logits f32 [rows, V], Columns of which, at most SampleIDs, count. Rules i32 [rows, 4]: a token to take without
// a choice, or −1; top-k; draw, a random word; the row's first edit (the next row's first is
// its end). Numbers f64 [rows, 3]: temperature, top-p, min-p. EditIDs i32 [edits],
// EditValues f32 [edits, 2], none: no edits. IDs i32 [rows]: −1 where a logit is not finite.
// The others tell of the logits before edits; none: not asked for. Chosen f32 [rows]: the
// token's. Max f32, Sum i64 [rows]: the largest, and the weights' sum at temperature 1.
// Best i32, BestLogits f32 [rows, n]: the first n in rank, −1 beyond the last.
//
//op:sample
type SampleArgs struct {
	IDs         Tensor `dtype:"i32"`
	Chosen, Max Tensor `dtype:"f32"`
	Sum         Tensor `dtype:"i64"`
	Best        Tensor `dtype:"i32"`
	BestLogits  Tensor `dtype:"f32"`
	Logits      Tensor `dtype:"f32"`
	Rules       Tensor `dtype:"i32"`
	Numbers     Tensor `dtype:"f64"`
	EditIDs     Tensor `dtype:"i32"`
	EditValues  Tensor `dtype:"f32"`
	Columns     int64
}

func (a *SampleArgs) check() bool {
	rows, edits := a.Logits.Shape[0], a.EditIDs.Shape[0]
	return a.Logits.Rank == 2 && a.Columns > 0 && a.Columns <= SampleIDs && a.Columns <= a.Logits.Last() && shaped(a.IDs, rows) && shaped(a.Chosen, rows) &&
		shaped(a.Rules, rows, 4) && shaped(a.Numbers, rows, 3) && optional(a.Max, rows) && a.Sum.Given() == a.Max.Given() && optional(a.Sum, rows) &&
		optional(a.Best, rows, a.Best.Shape[1]) && sameOrNone(a.Best, a.BestLogits) && a.EditIDs.Given() == a.EditValues.Given() && optional(a.EditValues, edits, 2)
}

func (a *SampleArgs) main() Tensor { return a.Logits }

func (a *SampleArgs) work() Work { return streamed(a.Logits) }
