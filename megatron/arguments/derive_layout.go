package arguments

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"monotron/megatron/arguments/table"
	"monotron/megatron/config"
	"monotron/megatron/optimizer"
	"monotron/megatron/spec"
)

// deriveLayout assigns the model to ranks.
func (p *parser) deriveLayout() {
	l := &p.Layout
	if p.options.ModelOnly {
		*l = config.Layout{TP: 1, PP: 1, CP: 1, EP: 1, OptimizerInstances: 1, MicroBatchGroup: l.MicroBatchGroup}
		p.Raw.VirtualStages, p.Raw.LayersPerVirtual, p.Raw.FSDP = 0, 0, false
	}
	p.refuseLayouts()
	full := p.deriveWorld()
	if !full { // the rest is checked all the same, to tell everything at once
		l.DP = 1
	}
	// Tensor parallelism and what depends on it.
	if l.TP == 1 && l.SequenceParallel {
		l.SequenceParallel = false
		p.notice("--sequence-parallel has no effect with --tensor-model-parallel-size 1")
	}
	switch {
	case l.TPCommOverlap && l.TP == 1:
		l.TPCommOverlap = false
		p.notice("--tp-comm-overlap has no effect with --tensor-model-parallel-size 1")
	case l.TPCommOverlap && !l.SequenceParallel:
		p.clash("tp-comm-overlap sequence-parallel", "--tp-comm-overlap needs --sequence-parallel, whose all-gathers and reduce-scatters are overlapped; give both")
	}
	if l.ETP == 0 || p.Model.Experts == nil {
		l.ETP = l.TP
	}
	// Each kind of parallelism with the model.
	p.checkTensorParallel()
	p.checkContextParallel()
	p.deriveStages()
	if full {
		p.checkExpertParallel()
	}
	if len(p.SamplePrompt) > 0 && l.SequenceParallel {
		p.clash("sample-prompt sequence-parallel", "--sample-prompt cannot be combined with --sequence-parallel, because a sample is generated one token at a time and one token cannot be sharded; leave one out")
	}
	if l.MicroBatchGroup == 0 {
		l.MicroBatchGroup = l.PP
	}
	// How data-parallel ranks share the optimizer.
	p.deriveSharding()
	switch ranks := l.DP * l.CP; {
	case ranks%max(1, l.OptimizerInstances) != 0:
		p.clash("num-distributed-optimizer-instances", "--num-distributed-optimizer-instances %d does not divide the %d ranks that share gradients: use %s", l.OptimizerInstances, ranks, divisors(ranks, l.OptimizerInstances))
	case l.OptimizerInstances > 1 && !l.DistributedOptimizer:
		p.clash("num-distributed-optimizer-instances use-distributed-optimizer", "--num-distributed-optimizer-instances %d needs --use-distributed-optimizer; give both", l.OptimizerInstances)
	}
	if l.BucketSize > 0 && l.BucketCount > 0 {
		p.clash("ddp-bucket-size ddp-num-buckets", "--ddp-bucket-size cannot be combined with --ddp-num-buckets; give one")
	}
}

// deriveSharding says what data-parallel ranks share.
func (p *parser) deriveSharding() {
	l := &p.Layout
	if p.Raw.FSDP && l.Sharding == "" {
		l.Sharding = "optim_grads_params"
	}
	p.deriveZeroStage()
	if l.Sharding == "" && l.DistributedOptimizer {
		l.Sharding = "optim"
	}
	if l.DistributedOptimizer && l.Sharding == "no_shard" {
		p.clash("use-distributed-optimizer data-parallel-sharding-strategy", "--use-distributed-optimizer cannot be combined with --data-parallel-sharding-strategy no_shard; leave one out")
	}
	l.DistributedOptimizer = l.Sharding != "" && l.Sharding != "no_shard"
	if p.OffloadFolder != "" && p.Checkpoint.Async {
		p.clash("offload-folder async-save", "--async-save cannot be combined with --offload-folder: an asynchronous save copies all tensors to memory, which --offload-folder avoids; leave one out")
	}
	if p.OffloadFolder != "" && p.OptimizerCPUOffload {
		p.clash("offload-folder optimizer-cpu-offload", "--offload-folder cannot be combined with --optimizer-cpu-offload; leave one out")
	}
	p.deriveTiling()
	if l.OverlapParamGather && !(l.DistributedOptimizer && l.OverlapGradReduce) {
		p.clash("overlap-param-gather use-distributed-optimizer overlap-grad-reduce", "--overlap-param-gather needs --use-distributed-optimizer and --overlap-grad-reduce")
	}
}

// deriveTiling checks --memory-centric-tiling.
func (p *parser) deriveTiling() {
	l := &p.Layout
	switch {
	case l.MemoryCentricTiling == 0:
	case l.Sharding != string(optimizer.OptimGradsParams):
		p.clash("memory-centric-tiling zero-stage data-parallel-sharding-strategy", "--memory-centric-tiling %d needs --zero-stage 3, which gathers parameters when they are used; give both", l.MemoryCentricTiling)
	case l.TPCommOverlap:
		p.clash("memory-centric-tiling tp-comm-overlap", "--memory-centric-tiling cannot be combined with --tp-comm-overlap, which would gather each tile again for each part of a product; leave one out")
	case l.OptimizerInstances > 1:
		p.clash("memory-centric-tiling num-distributed-optimizer-instances", "--memory-centric-tiling cannot be combined with --num-distributed-optimizer-instances above 1; leave --num-distributed-optimizer-instances out")
	case l.DP*l.CP == 1 && p.OffloadFolder == "":
		l.MemoryCentricTiling = 0
		p.notice("--memory-centric-tiling has no effect: without --offload-folder, one rank keeps all parameters in memory")
	}
}

// deriveZeroStage reads DeepSpeed's way to say what is shared.
func (p *parser) deriveZeroStage() {
	l := &p.Layout
	if p.Raw.ZeroStage == nil {
		return
	}
	strategy := table.Find("data-parallel-sharding-strategy").Choices[*p.Raw.ZeroStage]
	if l.Sharding != "" && l.Sharding != strategy {
		p.clash("zero-stage data-parallel-sharding-strategy", "--zero-stage %d, which means --data-parallel-sharding-strategy %s, cannot be combined with --data-parallel-sharding-strategy %s; leave one out", *p.Raw.ZeroStage, strategy, l.Sharding)
		return
	}
	l.Sharding = strategy
}

// refuseLayouts refuses each size above 1 that the caller cannot train with; the
// rest is checked as if it were 1.
func (p *parser) refuseLayouts() {
	l, o := &p.Layout, &p.options
	for _, s := range []struct {
		flag string
		size *int
		can  bool
	}{
		{"tensor-model-parallel-size", &l.TP, o.Layouts}, {"pipeline-model-parallel-size", &l.PP, o.Layouts}, {"world-size", &l.WorldSize, o.Layouts},
		{"context-parallel-size", &l.CP, o.Layouts}, {"expert-model-parallel-size", &l.EP, o.Layouts && o.Experts},
	} {
		if *s.size > 1 && !s.can {
			p.problem("--%s %d is not supported by this build; use 1", s.flag, *s.size)
			p.spoil(s.flag)
			*s.size = 1
		}
	}
}

// deriveWorld fills world and data-parallel size.
func (p *parser) deriveWorld() bool {
	l := &p.Layout
	if !p.sound("world-size tensor-model-parallel-size pipeline-model-parallel-size context-parallel-size") {
		return false
	}
	one := l.TP * l.PP * l.CP // ranks that hold one copy of the model
	switch {
	case l.WorldSize > 0 && p.options.Ranks > 0 && l.WorldSize != p.options.Ranks:
		p.problem("--world-size %d must equal the %d ranks that the launcher started; leave --world-size out", l.WorldSize, p.options.Ranks)
		return false
	case l.WorldSize == 0 && p.options.Ranks > 0:
		l.WorldSize = p.options.Ranks
	case l.WorldSize == 0 && one > 1:
		p.problem("one copy of the model needs %d ranks (tensor %d x pipeline %d x context %d): give --world-size %d to run them in this process, or start processes with `monotron launch`",
			one, l.TP, l.PP, l.CP, one)
		return false
	case l.WorldSize == 0:
		l.WorldSize = 1
	}
	if l.WorldSize%one != 0 {
		p.problem("%s not divide into copies of the model with %d ranks each (tensor %d x pipeline %d x context %d): use --world-size %s",
			ranksDo(l.WorldSize), one, l.TP, l.PP, l.CP, config.NearestMultiples(l.WorldSize, one))
		return false
	}
	l.DP = l.WorldSize / one
	return true
}

func (p *parser) checkTensorParallel() {
	m, tp := &p.Model, p.Layout.TP
	if text := m.UncutHeads(tp); text != "" {
		p.clash("num-attention-heads tensor-model-parallel-size num-query-groups", "%s", text)
	}
	if m.FFNHiddenSize%tp != 0 {
		p.clash("ffn-hidden-size hidden-size tensor-model-parallel-size", "--ffn-hidden-size %d is not a multiple of --tensor-model-parallel-size %d: use --ffn-hidden-size %s", m.FFNHiddenSize, tp, config.NearestMultiples(m.FFNHiddenSize, tp))
	}
	if p.Layout.SequenceParallel && p.SeqLength%(tp*p.Layout.CP) != 0 {
		p.clash("sequence-parallel seq-length", "--sequence-parallel: --seq-length %d is not a multiple of %d (--tensor-model-parallel-size x --context-parallel-size): use --seq-length %s", p.SeqLength, tp*p.Layout.CP, config.NearestMultiples(p.SeqLength, p.sequenceCut()))
	}
}

// divisors are the divisors of n nearest to a number.
func divisors(n, near int) string {
	return spec.Nearest(near, n, func(d int) bool { return n%d == 0 })
}

// sequenceCut is what --seq-length must be a multiple of.
func (p *parser) sequenceCut() int {
	l, unit := &p.Layout, 1
	if l.CP > 1 {
		unit = 2 * l.CP
	}
	n := unit
	for l.SequenceParallel && n%(l.TP*l.CP) != 0 {
		n += unit
	}
	return n
}

func (p *parser) checkContextParallel() {
	l := &p.Layout
	// The zig-zag cut gives each rank two stretches of a sequence, of equal length.
	if l.CP > 1 && p.SeqLength%(2*l.CP) != 0 {
		p.clash("seq-length context-parallel-size", "--seq-length %d is not a multiple of %d (twice --context-parallel-size): use --seq-length %s",
			p.SeqLength, 2*l.CP, config.NearestMultiples(p.SeqLength, p.sequenceCut()))
	}
	if n := len(l.CPCommType); n > 1 && n != p.Model.NumLayers {
		p.clash("cp-comm-type", "--cp-comm-type accepts one value, or one per layer (%d), but has %d", p.Model.NumLayers, n)
	}
	// Cutting by document is right only if attention stays inside documents.
	switch d := &p.Data; {
	case l.ZigZagPerDocument && l.CP == 1:
		p.notice("--cp-zigzag-per-document has no effect with --context-parallel-size 1")
		l.ZigZagPerDocument = false
	case l.ZigZagPerDocument && !d.ResetAttentionMask && !d.InterDocumentMasking:
		p.clash("cp-zigzag-per-document reset-attention-mask dataloader-inter-document-masking",
			"--cp-zigzag-per-document needs --reset-attention-mask or --dataloader-inter-document-masking; add one of these, or leave --cp-zigzag-per-document out")
	}
	if l.CP == 1 && len(l.HierarchicalCP) > 0 {
		p.notice("--hierarchical-context-parallel-sizes has no effect with --context-parallel-size 1")
		l.HierarchicalCP = nil
	}
	// Sizes of a2a+p2p, then the heads that each exchange needs to divide.
	inside := slices.Contains(l.CPCommType, config.HeadsInsideRing)
	sizes := p.checkHierarchy(inside)
	if l.CP == 1 {
		return
	}
	for _, x := range []struct {
		kind  string
		heads int
	}{{config.ExchangeHeads, l.CP}, {config.HeadsInsideRing, sizes}} {
		if slices.Contains(l.CPCommType, x.kind) {
			p.checkHeads(x.kind, x.heads)
		}
	}
}

// checkHierarchy checks the sizes of a2a+p2p; it returns that of a2a, 1 where they are wrong.
func (p *parser) checkHierarchy(needed bool) (heads int) {
	l := &p.Layout
	const flags = "hierarchical-context-parallel-sizes context-parallel-size cp-comm-type"
	// pairs is the advice of every message: the factors of the ranks.
	pairs := func() string {
		var all []string
		for _, a := range properDivisors(l.CP) {
			all = append(all, fmt.Sprintf("%d %d", a, l.CP/a))
		}
		if len(all) == 0 {
			return "--cp-comm-type p2p or a2a instead: " + strconv.Itoa(l.CP) + " ranks are not a product of two sizes above 1"
		}
		return "--hierarchical-context-parallel-sizes " + strings.Join(all, " or ")
	}
	product := 1
	for _, size := range l.HierarchicalCP {
		product *= size
	}
	switch n := len(l.HierarchicalCP); {
	case n == 0 && needed && l.CP > 1:
		p.clash(flags, "--cp-comm-type a2a+p2p needs the sizes of a2a and of p2p: use %s", pairs())
	case n > 0 && n != 2:
		p.clash(flags, "--hierarchical-context-parallel-sizes needs two sizes, of a2a and of p2p, but has %d: use %s", n, pairs())
	case n > 0 && product != l.CP:
		p.clash(flags, "the product of --hierarchical-context-parallel-sizes %d %d is %d, not --context-parallel-size %d: use %s", l.HierarchicalCP[0], l.HierarchicalCP[1], product, l.CP, pairs())
	case n == 2:
		return l.HierarchicalCP[0]
	}
	return 1
}

// checkHeads: an exchange of heads for positions gives each rank complete query groups.
func (p *parser) checkHeads(kind string, heads int) {
	tp, all := p.Layout.TP, p.Model.FewestGroups()
	groups := max(1, all/tp) // on a rank
	if all == 0 || groups%heads == 0 {
		return
	}
	what, flag := "heads", "--num-attention-heads"
	if all != p.Model.NumAttentionHeads {
		what, flag = "query groups", "--num-query-groups"
	}
	p.clash("cp-comm-type num-query-groups num-attention-heads context-parallel-size hierarchical-context-parallel-sizes",
		"--cp-comm-type %s: %d ranks exchange heads, but %[2]d does not divide the %d %s of each tensor-parallel rank (%s %d, tensor %d): use %s--cp-comm-type p2p or all_gather",
		kind, heads, groups, what, flag, all, tp, p.fittingHierarchy(kind, groups))
}

// fittingHierarchy are the sizes of a2a+p2p that give each rank complete query groups, as flags to use
// instead; "": there are none.
func (p *parser) fittingHierarchy(kind string, groups int) string {
	var fit []string
	for _, a := range properDivisors(p.Layout.CP) {
		if groups%a == 0 {
			fit = append(fit, fmt.Sprintf("%d %d", a, p.Layout.CP/a))
		}
	}
	if len(fit) == 0 {
		return ""
	}
	text := "--hierarchical-context-parallel-sizes " + strings.Join(fit, " or ") + ", or "
	if kind == config.ExchangeHeads {
		text = "--cp-comm-type " + config.HeadsInsideRing + " with " + text
	}
	return text
}

// properDivisors are those above 1 and below n.
func properDivisors(n int) (list []int) {
	for a := 2; a < n; a++ {
		if n%a == 0 {
			list = append(list, a)
		}
	}
	return list
}

// stageFlags are those that the cut of the layers follows from.
const stageFlags = "num-layers pipeline-model-parallel-size num-virtual-stages-per-pipeline-rank num-layers-per-virtual-pipeline-stage " +
	"pipeline-model-parallel-layout pp-partition-method decoder-first-pipeline-num-layers decoder-last-pipeline-num-layers"

// deriveStages cuts the model over the pipeline: how many chunks a rank has
// follows from whichever flag says so.
func (p *parser) deriveStages() {
	p.Layout.VP = 1
	if p.Model.NumLayers < 1 || !p.sound(stageFlags) {
		return // reported
	}
	split := p.Split()
	split.VirtualStages, split.LayersPerChunk = p.Raw.VirtualStages, p.Raw.LayersPerVirtual
	parts, err := split.Parts()
	p.problems = append(p.problems, separate(err)...)
	if err == nil {
		p.Layout.VP = len(parts[0])
	}
}

// ranksDo begins the sentence that says what n ranks do not do.
func ranksDo(n int) string {
	if n == 1 {
		return "1 rank does"
	}
	return fmt.Sprintf("%d ranks do", n)
}

// fittingExperts are the nearest sizes with which the ranks divide into expert copies: of expert
// parallelism, or where none does of expert tensor parallelism.
func (p *parser) fittingExperts() string {
	l, e := &p.Layout, p.Model.Experts
	fits := func(etp, ep int) bool {
		return e.FFNHiddenSize%etp == 0 && e.Num%ep == 0 && l.WorldSize%(etp*ep*l.PP) == 0
	}
	if l.WorldSize%(l.ETP*l.PP) == 0 {
		return "--expert-model-parallel-size " + spec.Nearest(l.EP, e.Num, func(ep int) bool { return fits(l.ETP, ep) })
	}
	ep := l.EP
	if !fits(1, ep) {
		ep = 1
	}
	advice := "--expert-tensor-parallel-size " + spec.Nearest(l.ETP, e.FFNHiddenSize, func(etp int) bool { return fits(etp, ep) })
	if ep != l.EP {
		advice += " with --expert-model-parallel-size 1"
	}
	return advice
}

func (p *parser) checkExpertParallel() {
	l, e := &p.Layout, p.Model.Experts
	if l.EP > 1 && e == nil {
		p.clash("expert-model-parallel-size num-experts", "--expert-model-parallel-size %d needs --num-experts; give both, or leave --expert-model-parallel-size out", l.EP)
	}
	if e == nil {
		return
	}
	if e.Num%l.EP != 0 {
		p.clash("num-experts expert-model-parallel-size", "--num-experts %d is not a multiple of --expert-model-parallel-size %d; use --expert-model-parallel-size %s", e.Num, l.EP, divisors(e.Num, l.EP))
	}
	if e.FFNHiddenSize%l.ETP != 0 {
		p.clash("moe-ffn-hidden-size expert-tensor-parallel-size", "--moe-ffn-hidden-size %d is not a multiple of --expert-tensor-parallel-size %d; use --expert-tensor-parallel-size %s", e.FFNHiddenSize, l.ETP, divisors(e.FFNHiddenSize, l.ETP))
	}
	if e.SharedFFN%l.TP != 0 {
		p.clash("moe-shared-expert-intermediate-size tensor-model-parallel-size", "--moe-shared-expert-intermediate-size %d is not a multiple of --tensor-model-parallel-size %d; use --moe-shared-expert-intermediate-size %s", e.SharedFFN, l.TP, config.NearestMultiples(e.SharedFFN, l.TP))
	}
	if l.WorldSize%(l.ETP*l.EP*l.PP) != 0 {
		p.clash("expert-tensor-parallel-size expert-model-parallel-size", "%s not divide evenly into copies of the experts with %d ranks each (expert tensor %d x expert %d x pipeline %d); use %s", ranksDo(l.WorldSize), l.ETP*l.EP*l.PP, l.ETP, l.EP, l.PP, p.fittingExperts())
	}
	if l.OrderTPPPDP && l.PP > 1 && l.ETP*l.EP != l.TP*l.CP {
		// The stages of the experts would be other ranks than those of the layers around them.
		p.clash("use-tp-pp-dp-mapping expert-model-parallel-size", "--use-tp-pp-dp-mapping with experts and a pipeline: the number of ranks that share the experts (expert tensor %d x expert %d) must equal the number that share a sample (tensor %d x context %d); change one of these sizes, or leave --use-tp-pp-dp-mapping out", l.ETP, l.EP, l.TP, l.CP)
	}
	if p.Model.LinearBias && l.ETP > 1 {
		p.clash("expert-tensor-parallel-size disable-bias-linear", "--expert-tensor-parallel-size above 1 needs --disable-bias-linear, because experts with biases cannot be shared among ranks; give both, or use --expert-tensor-parallel-size 1")
	}
	if l.TP > 1 && !l.SequenceParallel {
		p.clash("tensor-model-parallel-size sequence-parallel", "--num-experts with --tensor-model-parallel-size %d needs --sequence-parallel; give both", l.TP)
	}
}
