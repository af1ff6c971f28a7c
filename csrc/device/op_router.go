package device

// RouterScore is how a router's logits become the weights of the chosen experts
// (--moe-router-score-function, --moe-router-pre-softmax).
type RouterScore int32

const (
	SoftmaxOfChosen RouterScore = iota // over the chosen experts
	SoftmaxOfAll                       // over all experts; the chosen ones' are not renormalised
	SigmoidScore                       // the chosen ones' divided by their sum, where there are several
	SqrtSoftplusScore
)

// RouterRule is how a token's experts are chosen and weighted.
type RouterRule struct {
	Score             RouterScore
	Groups, GroupTopK int32   // of experts, of which the best are kept; 0: none
	GroupBest         int32   // experts of a group whose sum is the group's score
	Scaling           float32 // weights are multiplied by it
	_                 int32
}

// fits reports whether a token finds k of so many experts by the rule.
func (r *RouterRule) fits(k, experts int64) bool {
	groups, kept := int64(r.Groups), int64(r.GroupTopK)
	return groups == 0 || groups > 0 && kept > 0 && kept <= groups && experts%groups == 0 && k <= kept*(experts/groups) &&
		r.GroupBest > 0 && int64(r.GroupBest) <= experts/groups
}

// RouterForwardArgs: of each token's logits [t,E] the k best experts, best first, ties by
// number, and their weights, both [t,k] (Megatron's topk_routing_with_score_function).
// Bias f32 [E] is added to the scores for the choice alone; Keys f32 [t,E], where given,
// are chosen by instead of the scores. Scores are sigmoids or square roots of softplus,
// probabilities over all experts with SoftmaxOfAll, and logits with SoftmaxOfChosen; the
// sum of a group's scores depends on which.
//
//op:router_forward
type RouterForwardArgs struct {
	Weights Tensor `dtype:"f32"`
	Experts Tensor `dtype:"i32"`
	Logits  Tensor `dtype:"value|f32"`
	Bias    Tensor `dtype:"f32"`
	Keys    Tensor `dtype:"f32"`
	Rule    RouterRule
}

func (a *RouterForwardArgs) check() bool {
	return a.Logits.Rank == 2 && a.Weights.Rank == 2 && a.Weights.Shape[0] == a.Logits.Shape[0] && a.Weights.Last() <= a.Logits.Last() &&
		same(a.Weights, a.Experts) && optional(a.Bias, a.Logits.Last()) && sameOrNone(a.Logits, a.Keys) && a.Rule.fits(a.Weights.Last(), a.Logits.Last())
}

func (a *RouterForwardArgs) main() Tensor { return a.Logits }

func (a *RouterForwardArgs) work() Work { return streamed(a.Logits, a.Keys, a.Weights, a.Experts) }

// RouterBackwardArgs: DLogits [t,E] = the gradient of the weights' logits, 0 where an
// expert has no part in them.
//
//op:router_backward
type RouterBackwardArgs struct {
	DLogits  Tensor `dtype:"f32"`
	DWeights Tensor `dtype:"f32"`
	Experts  Tensor `dtype:"i32"`
	Logits   Tensor `dtype:"value|f32"`
	Rule     RouterRule
}

func (a *RouterBackwardArgs) check() bool {
	return a.Logits.Rank == 2 && shaped(a.DLogits, a.Logits.Dims()...) && same(a.DWeights, a.Experts) && a.Experts.Shape[0] == a.Logits.Shape[0]
}

func (a *RouterBackwardArgs) main() Tensor { return a.Logits }

func (a *RouterBackwardArgs) work() Work { return streamed(a.DLogits, a.Logits, a.DWeights, a.Experts) }

// RouterBalanceArgs is what balancing losses are made of (Fedus et al., arXiv 2101.03961, eq. 4), by sample
// where several are distinguished: row i belongs to sample i % Samples. Probs [Samples,E] = Σ p over a sample's
// tokens, p the softmax over all experts, or scores divided by their sum; Counts f32 [Samples,E] = how often
// an expert is among the K with the highest p. Bits > 0: Probs f64, each p rounded to a multiple of 2^-Bits,
// whose sums have no order. With DLogits given the op is the backward: of Counts it makes DLogits +=
// Coefficient·*Scale · the gradient of Σ Counts·p. Scale f32 [1].
//
//op:router_balance
type RouterBalanceArgs struct {
	Probs       Tensor `dtype:"f32|f64"`
	Counts      Tensor `dtype:"f32"`
	DLogits     Tensor `dtype:"f32"`
	Scale       Tensor `dtype:"f32"`
	Logits      Tensor `dtype:"value|f32"`
	Coefficient float64
	Samples     int64
	Bits        int64
	Score       RouterScore
	K           int32
}

func (a *RouterBalanceArgs) check() bool {
	if a.Logits.Rank != 2 || a.Samples < 1 || a.Logits.Shape[0]%a.Samples != 0 || !shaped(a.Counts, a.Samples, a.Logits.Last()) {
		return false
	}
	if a.DLogits.Given() {
		return shaped(a.DLogits, a.Logits.Dims()...) && shaped(a.Scale, 1) && !a.Probs.Given()
	}
	return same(a.Probs, a.Counts) && (a.Bits == 0 || a.Bits > 0 && a.Bits < 52 && a.Probs.DType == F64) && a.K > 0 && int64(a.K) <= a.Logits.Last()
}

func (a *RouterBalanceArgs) main() Tensor { return a.Logits }

func (a *RouterBalanceArgs) work() Work { return streamed(a.Logits, a.DLogits, a.DLogits) }

// RouterZArgs is the z-loss (Zoph et al., arXiv 2202.08906): Squares f32 [t] = the square
// of each row's log of summed exponentials; or, where DLogits is given, DLogits +=
// Coefficient·*Scale · the gradient of their sum. Scale f32 [1].
//
//op:router_z
type RouterZArgs struct {
	Squares     Tensor `dtype:"f32"`
	DLogits     Tensor `dtype:"f32"`
	Scale       Tensor `dtype:"f32"`
	Logits      Tensor `dtype:"value|f32"`
	Coefficient float64
}

func (a *RouterZArgs) check() bool {
	if a.Logits.Rank != 2 {
		return false
	}
	if a.DLogits.Given() {
		return shaped(a.DLogits, a.Logits.Dims()...) && shaped(a.Scale, 1) && !a.Squares.Given()
	}
	return shaped(a.Squares, a.Logits.Shape[0])
}

func (a *RouterZArgs) main() Tensor { return a.Logits }

func (a *RouterZArgs) work() Work { return streamed(a.Logits, a.DLogits, a.DLogits) }

// RouterDropArgs keeps of each expert's choices at most Capacity: Kept i32 [t,k] is Experts,
// or −1 where a choice is dropped. Those with the largest Weights f32 [t,k] stay, ties by
// token; or, with ByPosition, the first.
//
//op:router_drop
type RouterDropArgs struct {
	Kept, Experts Tensor `dtype:"i32"`
	Weights       Tensor `dtype:"f32"`
	Capacity      int64
	NumExperts    int64
	ByPosition    int32
	_             int32
}

func (a *RouterDropArgs) check() bool {
	return a.Experts.Rank == 2 && same(a.Kept, a.Experts) && same(a.Weights, a.Experts) && a.Capacity >= 0 && a.NumExperts > 0
}

func (a *RouterDropArgs) main() Tensor { return a.Experts }

func (a *RouterDropArgs) work() Work { return streamed(a.Experts, a.Kept, a.Weights) }

// RouterSinkhornArgs: Keys f32 [t,E] = exp(Logits) scaled by rows and columns until every
// token has the same sum and every expert too (Clark et al., arXiv 2202.01169), to a mean
// change of the columns' factors of 1e-4, as Megatron does.
//
//op:router_sinkhorn
type RouterSinkhornArgs struct {
	Keys   Tensor `dtype:"f32"`
	Logits Tensor `dtype:"value|f32"`
}

func (a *RouterSinkhornArgs) check() bool {
	return a.Logits.Rank == 2 && shaped(a.Keys, a.Logits.Dims()...)
}

func (a *RouterSinkhornArgs) main() Tensor { return a.Logits }

func (a *RouterSinkhornArgs) work() Work { return streamed(a.Logits, a.Keys) }
