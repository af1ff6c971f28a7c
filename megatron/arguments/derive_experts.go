package arguments

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"monotron/megatron/spec"
)

// deriveExperts completes the mixture of experts, if there is one.
func (p *parser) deriveExperts() {
	e := &p.Raw.Experts
	if e.Num == 0 {
		return
	}
	if !p.options.Experts {
		p.clash("num-experts", "--num-experts %d: this build trains dense models only; leave --num-experts out", e.Num)
		return
	}
	if e.FFNHiddenSize == 0 {
		e.FFNHiddenSize = p.Model.FFNHiddenSize
	}
	if e.Layers = p.Raw.Hybrid.Experts; e.Layers == nil {
		var err error
		if e.Layers, err = mixtureLayers(p.Raw.LayerFreq, p.Model.NumLayers); err != nil {
			p.clash("moe-layer-freq", "--moe-layer-freq %s: %v", cmp.Or(p.Raw.LayerFreq, `""`), err)
		}
	}
	p.checkRouter(e)
	p.Model.Experts = e
}

func (p *parser) checkRouter(e *spec.Experts) {
	// Counts of experts and layers.
	if e.TopK < 1 || e.TopK > e.Num {
		p.clash("moe-router-topk num-experts", "--moe-router-topk must be from 1 to --num-experts %d, not %d", e.Num, e.TopK)
	}
	if !slices.Contains(e.Layers, true) && len(e.Layers) > 0 && p.Raw.HybridPattern == "" {
		p.clash("moe-layer-freq", "--moe-layer-freq %s gives experts to none of the %d layers, although --num-experts is %d; change one of the flags", p.Raw.LayerFreq, p.Model.NumLayers, e.Num)
	}
	if e.SharedFFN > 0 && p.Model.LinearBias {
		p.clash("moe-shared-expert-intermediate-size disable-bias-linear", "--moe-shared-expert-intermediate-size needs --disable-bias-linear, because shared experts have no biases")
	}
	if e.LatentSize > 0 && p.Model.LinearBias {
		p.clash("moe-latent-size disable-bias-linear", "--moe-latent-size needs --disable-bias-linear, because projections around experts have no biases")
	}
	if e.LatentSize > 0 && p.Model.ParallelMLP {
		p.clash("moe-latent-size moe-parallel-mlp", "--moe-latent-size cannot be combined with --moe-parallel-mlp; leave one out")
	}
	if f := p.Checkpoint.Format; e.LatentSize > 0 && (f == "torch" || f == "torch_dist") {
		p.clash("moe-latent-size ckpt-format", "--ckpt-format %s cannot store projections around experts; leave --ckpt-format out (`monotron convert --to hf` writes the result as a Hugging Face folder)", f)
	}
	// Scores.
	if e.GlobalExact && !slices.Contains(e.Balancing, spec.GlobalAuxLoss) {
		p.clash("moe-global-aux-exact moe-router-load-balancing-type", "--moe-global-aux-exact needs --moe-router-load-balancing-type global_aux_loss; give both")
	}
	if e.ExpertBias && e.ScoreFunction == spec.ScoreSoftmax {
		p.clash("moe-router-enable-expert-bias moe-router-score-function", "--moe-router-enable-expert-bias needs --moe-router-score-function sigmoid or sqrtsoftplus")
	}
	if e.TopK == 1 && e.Num > 1 && e.ScoreFunction == spec.ScoreSoftmax && !e.PreSoftmax {
		p.clash("moe-router-topk moe-router-pre-softmax", "--moe-router-topk 1 with softmax scores needs --moe-router-pre-softmax: the softmax of one number has no gradient")
	}
	// Groups: a token chooses experts from its best groups only, so these must have enough of them.
	if (e.NumGroups > 0) != (e.GroupTopK > 0) {
		p.clash("moe-router-num-groups moe-router-group-topk", "--moe-router-num-groups and --moe-router-group-topk need each other; give both")
	} else if e.NumGroups > 0 && (e.Num%e.NumGroups != 0 || e.GroupTopK > e.NumGroups || e.GroupBest == 0 && e.TopK%e.GroupTopK != 0) {
		p.clash("num-experts moe-router-num-groups moe-router-group-topk moe-router-topk", "--num-experts %d, --moe-router-num-groups %d, --moe-router-group-topk %d, --moe-router-topk %d: the number of groups must divide the number of experts (possible: %s), and the groups per token must divide the experts per token (possible: %s)",
			e.Num, e.NumGroups, e.GroupTopK, e.TopK, divisors(e.Num, e.NumGroups), spec.Nearest(e.GroupTopK, min(e.TopK, e.NumGroups), func(n int) bool { return e.TopK%n == 0 }))
	} else if e.NumGroups > 0 && e.TopK <= e.Num && !e.Choosable() {
		p.clash("num-experts moe-router-num-groups moe-router-group-topk moe-router-topk", "--moe-router-topk %d with --moe-router-group-topk %d needs %d experts from each group, but with --moe-router-num-groups %d a group has only %d; use fewer groups, or more groups per token",
			e.TopK, e.GroupTopK, max(e.BestOfGroup(), (e.TopK+e.GroupTopK-1)/e.GroupTopK), e.NumGroups, e.Num/e.NumGroups)
	}
	if e.GroupBest > 0 && e.NumGroups == 0 {
		p.notice("--moe-router-group-best %d has no effect without --moe-router-num-groups", e.GroupBest)
		e.GroupBest = 0
	}
	// Balancing losses, with one coefficient each; Sinkhorn balances by itself and has none.
	for i, kind := range e.Balancing {
		if slices.Contains(e.Balancing[:i], kind) {
			p.clash("moe-router-load-balancing-type", "--moe-router-load-balancing-type has %s twice; give it once, with the sum of both coefficients", kind)
		}
	}
	if n := len(e.Balancing); len(e.AuxLossCoeff) == 1 && n > 1 {
		e.AuxLossCoeff = slices.Repeat(e.AuxLossCoeff, n)
	} else if len(e.AuxLossCoeff) != n {
		p.clash("moe-aux-loss-coeff moe-router-load-balancing-type", "--moe-aux-loss-coeff accepts one number, or one per value of --moe-router-load-balancing-type (%d), but has %d", n, len(e.AuxLossCoeff))
	}
	if len(e.Balancing) > 1 && slices.Contains(e.Balancing, spec.Sinkhorn) || slices.Contains(e.Balancing, spec.Sinkhorn) && slices.Max(e.AuxLossCoeff) > 0 {
		p.clash("moe-router-load-balancing-type moe-aux-loss-coeff", "--moe-router-load-balancing-type sinkhorn cannot be combined with another type or with --moe-aux-loss-coeff above 0: sinkhorn balances the load without an auxiliary loss; leave one out")
	}
	p.checkQuantiles(e)
	// Capacity, weights on the input and the shared expert's gate need what they refer to.
	if e.CapacityFactor > 0 && slices.Contains(e.Balancing, spec.Sinkhorn) {
		p.clash("moe-expert-capacity-factor moe-router-load-balancing-type", "--moe-expert-capacity-factor cannot be combined with --moe-router-load-balancing-type sinkhorn; use aux_loss, seq_aux_loss, global_aux_loss or none")
	}
	if e.PadToCapacity && e.CapacityFactor == 0 {
		p.clash("moe-pad-expert-input-to-capacity moe-expert-capacity-factor", "--moe-pad-expert-input-to-capacity needs --moe-expert-capacity-factor")
	}
	if e.ProbsOnInput && e.TopK != 1 {
		p.clash("moe-apply-probs-on-input moe-router-topk", "--moe-apply-probs-on-input needs --moe-router-topk 1, not %d", e.TopK)
	}
	if e.SharedGate && e.SharedFFN == 0 {
		p.clash("moe-shared-expert-gate moe-shared-expert-intermediate-size", "--moe-shared-expert-gate needs --moe-shared-expert-intermediate-size")
	}
}

// checkQuantiles: Megatron's quantile_balancing cannot be combined with another balance, and takes the k+1st
// choice of a token.
func (p *parser) checkQuantiles(e *spec.Experts) {
	if !slices.Contains(e.Balancing, spec.Quantiles) {
		return
	}
	if len(e.Balancing) > 1 || slices.Max(append(e.AuxLossCoeff, 0)) > 0 || e.ExpertBias || e.NumGroups > 0 {
		p.clash("moe-router-load-balancing-type moe-aux-loss-coeff moe-router-enable-expert-bias moe-router-num-groups",
			"--moe-router-load-balancing-type quantile_balancing cannot be combined with another type, --moe-aux-loss-coeff above 0, --moe-router-enable-expert-bias or --moe-router-num-groups, because quantile balancing already balances the load when it chooses experts; leave these out")
	}
	switch {
	case e.Num == 1:
		p.clash("moe-router-topk num-experts", "--moe-router-load-balancing-type quantile_balancing needs --num-experts 2 or more, not 1")
	case e.TopK >= e.Num:
		p.clash("moe-router-topk num-experts", "--moe-router-load-balancing-type quantile_balancing needs --moe-router-topk of at most %d, not %d", e.Num-1, e.TopK)
	}
}

// checkSharedOverlap: as in Megatron the shared expert computes during the all-to-all alone, and
// is not made again.
func (p *parser) checkSharedOverlap() {
	e := p.Model.Experts
	if e == nil || !e.SharedOverlap || e.SharedFFN == 0 {
		return
	}
	if e.Dispatcher != spec.AllToAllDispatcher {
		p.clash("moe-shared-expert-overlap moe-token-dispatcher-type", "--moe-shared-expert-overlap needs --moe-token-dispatcher-type alltoall, not %s", e.Dispatcher)
	}
	if p.Recompute.Granularity == "selective" && slices.Contains(p.Recompute.Modules, "shared_experts") {
		p.clash("moe-shared-expert-overlap recompute-modules", "--moe-shared-expert-overlap cannot be combined with --recompute-modules shared_experts; leave one out")
	}
}

// mixtureLayers reads --moe-layer-freq: N means layers 0, N, 2N, .. (0-based);
// else a list of 0 and 1 with + and *, as in ([0]*1+[1]*3)*2.
func mixtureLayers(text string, layers int) ([]bool, error) {
	return layerPattern(text, layers, func(layer, n int) bool { return layer%n == 0 })
}

// windowLayers reads --window-attn-skip-freq: N means that layers N-1, 2N-1, .. (0-based)
// see everything; else a list with 1 where the window holds.
func windowLayers(text string, layers int) ([]bool, error) {
	return layerPattern(text, layers, func(layer, n int) bool { return (layer+1)%n != 0 })
}

// layerPattern reads a number N, which says by the rule which layers are meant, or a
// list of 0 and 1, one a layer.
func layerPattern(text string, layers int, rule func(layer, n int) bool) ([]bool, error) {
	out := make([]bool, 0, layers)
	// A number.
	if n, err := strconv.Atoi(text); err == nil {
		if n < 1 {
			return nil, fmt.Errorf("must be at least 1")
		}
		for i := range layers {
			out = append(out, rule(i, n))
		}
		return out, nil
	}
	// A list, in Megatron's syntax of products and sums, as in ([1]*3+[0]*1)*3.
	l := &listReader{text: strings.ReplaceAll(text, " ", "")}
	list := l.sum(0)
	if l.err == nil && l.text != "" {
		l.fail("unexpected text %q after the list", l.text)
	}
	if l.err != nil {
		return nil, l.err
	}
	if len(list) != layers {
		return nil, fmt.Errorf("the list has %d entries, but --num-layers is %d", len(list), layers)
	}
	for _, v := range list {
		if v > 1 {
			return nil, fmt.Errorf("the list has the entry %d; entries must be 0 or 1", v)
		}
		out = append(out, v != 0)
	}
	return out, nil
}

// listReader reads the lists that Megatron evaluates as Python: [0,1], a+b, a*n,
// and brackets around them.
type listReader struct {
	text string
	err  error
}

func (l *listReader) fail(format string, a ...any) {
	if l.err == nil {
		l.err = fmt.Errorf(format, a...)
	}
}

func (l *listReader) take(symbol string) bool {
	if strings.HasPrefix(l.text, symbol) {
		l.text = l.text[len(symbol):]
		return true
	}
	return false
}

func (l *listReader) sum(depth int) []int {
	list := l.product(depth)
	for l.err == nil && l.take("+") {
		list = append(list, l.product(depth)...)
	}
	return list
}

func (l *listReader) product(depth int) []int {
	list := l.factor(depth)
	for l.err == nil && l.take("*") {
		times := l.number()
		if times*max(1, len(list)) > 100000 {
			l.fail("the list has more than 100000 entries")
			return nil
		}
		list = slices.Repeat(list, max(0, times))
	}
	return list
}

func (l *listReader) factor(depth int) []int {
	var list []int
	switch {
	case depth > 16:
		l.fail("parentheses are nested more than 16 deep")
	case l.take("("):
		list = l.sum(depth + 1)
		if !l.take(")") {
			l.fail("a closing parenthesis is missing")
		}
	case l.take("["):
		for l.err == nil && !l.take("]") {
			list = append(list, l.number())
			l.take(",")
		}
	default:
		l.fail("expected an integer or a list such as ([0]*1+[1]*3)")
	}
	return list
}

func (l *listReader) number() int {
	end := 0
	for end < len(l.text) && l.text[end] >= '0' && l.text[end] <= '9' {
		end++
	}
	n, err := strconv.Atoi(l.text[:end])
	if err != nil || n > 100000 {
		l.fail("expected a number of at most 100000 at %q", l.text)
		return 0
	}
	l.text = l.text[end:]
	return n
}

// windowLeft reads --window-size LEFT,RIGHT; -1 means no limit.
func windowLeft(text string) (int, error) {
	if text == "" {
		return -1, nil
	}
	left, right, ok := strings.Cut(strings.NewReplacer("(", "", ")", "", " ", "").Replace(text), ",")
	l, err1 := strconv.Atoi(left)
	r, err2 := strconv.Atoi(right)
	switch {
	case !ok || err1 != nil || err2 != nil || l < -1:
		return -1, fmt.Errorf("must be LEFT,RIGHT, as in 4096,0")
	case r != 0 && r != -1:
		return -1, fmt.Errorf("RIGHT must be 0, because attention is causal")
	}
	return l, nil
}
