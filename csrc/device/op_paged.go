package device

// PagedBlock is how many positions of a sequence a block of its cache holds.
const PagedBlock = 16

// PagedAttentionArgs is causal attention for rows of several sequences whose keys and
// values lie in blocks (Kwon et al., arXiv 2309.06180). First K and V, of the rows
// themselves, are stored in Cache; then O = softmax(scale·QKᵀ + slope·(k−q))·V,
// where a row sees its sequence from max(position−Window, ⌊position/Chunk⌋·Chunk) to its own position. A row of O
// depends on its own sequence alone: not on the other rows, nor on their number.
//
// Q, O [rows, groups, heads per group, d]; K, V [rows, groups, 1, d], value dtype, any strides on the first
// three dimensions. Cache [blocks, groups, 2, PagedBlock·d]: of a block and group its keys [d, PagedBlock],
// then its values [PagedBlock, d]. Without a V the values are the keys, which are kept once: Cache [blocks,
// groups, 1, PagedBlock·d], of a block and group [PagedBlock, d]. Rows [rows, 2]: sequence and position;
// Tables [sequences, most]: a sequence's blocks, in order.
//
//op:paged_attention
type PagedAttentionArgs struct {
	O, Q, K, V, Cache Tensor `dtype:"value"`
	Tables, Rows      Tensor `dtype:"i32"`
	Slopes            Tensor `dtype:"f32"`       // as in AttentionForwardArgs
	Sinks             Tensor `dtype:"eachvalue"` // [heads]: scores of a key without a value (AttentionSink); none: none
	Window            int32  // keys to the left; -1: all
	Chunk             int32  // as in AttentionForwardArgs
	Scale             float32
	Cap               float32
	Rule              ScoreRule
	_                 int32
}

func (a *PagedAttentionArgs) check() bool {
	if a.Q.Rank != 4 || a.K.Rank != 4 || a.Cache.Rank != 4 || a.Tables.Rank != 2 {
		return false
	}
	rows, groups := a.Q.Shape[0], a.Q.Shape[1]
	sides := int64(1)
	if a.V.Given() {
		sides = 2
	}
	return same(a.O, a.Q) && (sides == 1 || same(a.V, a.K)) && shaped(a.K, rows, groups, 1, a.Q.Last()) &&
		shaped(a.Cache, a.Cache.Shape[0], groups, sides, PagedBlock*a.Q.Last()) && a.Cache.Contiguous() &&
		shaped(a.Rows, rows, 2) && slopesFit(a.Slopes, groups*a.Q.Shape[2], 0) && optional(a.Sinks, groups*a.Q.Shape[2])
}

func (a *PagedAttentionArgs) main() Tensor { return a.Q }

// work counts every row as seeing half of the longest table.
func (a *PagedAttentionArgs) work() Work {
	keys := float64(a.Tables.Last() * PagedBlock / 2)
	return Work{4 * float64(a.Q.Len()) * keys, size(a.Q, a.K, a.V, a.O) + keys*float64(a.Tables.Shape[0]*a.K.Shape[1]*a.K.Last()*a.Cache.Shape[2])*float64(a.K.DType.Size())}
}
