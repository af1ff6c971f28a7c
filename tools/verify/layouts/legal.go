package layouts

import (
	"fmt"
	"slices"
	"strings"

	"monotron/megatron/config"
	"monotron/megatron/model"
	"monotron/megatron/optimizer"
	"monotron/megatron/spec"
	"monotron/mpu"
)

// Variant is a layout with what else may change how a model is computed.
type Variant struct {
	Layout     config.Layout
	Recompute  model.Recompute
	MicroBatch int
	Dispatcher string // of experts; "": none
	Overlap    bool   // the shared expert computes while tokens travel
}

// One is the layout that the others are compared with.
func One(c *config.Run) Variant {
	v := Variant{Layout: config.Layout{VP: 1}, MicroBatch: c.MicroBatchSize}
	if oneSample(c) {
		v.MicroBatch = 1
	}
	if c.Model.Experts != nil {
		v.Dispatcher = spec.AllGatherDispatcher
	}
	return v
}

func (v Variant) String() string {
	l := v.Layout
	var words []string
	add := func(on bool, format string, a ...any) {
		if on {
			words = append(words, fmt.Sprintf(format, a...))
		}
	}
	// Tensor, pipeline, data and context parallelism, experts, sharding, recomputation.
	add(l.TP > 1, "tp%d", l.TP)
	add(l.SequenceParallel, "sp")
	add(l.TPCommOverlap, "tp-overlap")
	add(l.PP > 1, "pp%d", l.PP)
	add(l.VP > 1, "vp%d", l.VP)
	add(l.Schedule != "", "%s", l.Schedule)
	add(l.StageString != "", "%s", l.StageString)
	add(l.DP > 1, "dp%d", l.DP)
	add(l.CP > 1, "cp%d", l.CP)
	add(l.CP > 1 && len(l.CPCommType) == 1, "%s", strings.Join(l.CPCommType, ","))
	add(l.CP > 1 && len(l.CPCommType) > 1, "mixed-exchanges")
	add(l.ZigZagPerDocument, "per-document")
	add(l.EP > 1, "ep%d", l.EP)
	add(l.ETP > 0 && l.ETP != l.TP, "etp%d", l.ETP)
	add((l.EP > 1 || l.ETP > 1) && v.Dispatcher != "", "%s", v.Dispatcher)
	add(v.Overlap, "beside-shared")
	add(l.Sharding != "", "%s", l.Sharding)
	add(l.OverlapGradReduce, "overlap")
	add(l.OverlapParamGather, "late-gather")
	add(l.MemoryCentricTiling > 0, "tiled%d", l.MemoryCentricTiling)
	add(v.Recompute.Granularity == "full", "recompute-full-%s", v.Recompute.Method)
	add(v.Recompute.Granularity == "selective", "recompute-%s", strings.Join(v.Recompute.Modules, ","))
	add(l.DistributeSavedActivation, "distributed")
	if len(words) == 0 {
		return "one rank"
	}
	return strings.Join(words, " ")
}

// Legal lists every layout of 2 to world ranks that the model can be trained
// under, each with its variations.
func Legal(c *config.Run, world int) []Variant {
	var all []Variant
	for n := 2; n <= world; n++ {
		for tp := 1; tp <= n; tp++ {
			for pp := 1; tp*pp <= n; pp++ {
				if n%(tp*pp) != 0 {
					continue
				}
				for cp := 1; tp*pp*cp <= n; cp++ {
					if n%(tp*pp*cp) != 0 || cp > 1 && (c.SeqLength%(2*cp) != 0 || c.Model.Delta != nil && c.Model.Delta.KeyHeads%(tp*cp) != 0) {
						continue
					}
					if s := c.Model.Mamba; s != nil && s.Uncut(tp, cp) != "" {
						continue
					}
					sizes := config.Layout{WorldSize: n, TP: tp, PP: pp, CP: cp, EP: 1, DP: n / (tp * pp * cp), VP: 1}
					if c.Model.Experts != nil {
						all = append(all, mixtures(c, sizes)...)
					} else {
						all = append(all, variations(c, sizes)...)
					}
				}
			}
		}
	}
	return all
}

// contexts are the ways in which ranks that share sequences can exchange keys.
func contexts(c *config.Run, l config.Layout) (all []func(*config.Layout)) {
	if l.CP == 1 {
		return []func(*config.Layout){func(*config.Layout) {}}
	}
	// kind adds a way: one exchange for all layers, or one for each.
	kind := func(hierarchy []int, names ...mpu.ContextKind) {
		all = append(all, func(l *config.Layout) {
			l.HierarchicalCP, l.CPCommType = hierarchy, nil
			for _, name := range names {
				l.CPCommType = append(l.CPCommType, string(name))
			}
		})
	}
	// Keys can always be gathered or sent around; heads only if ranks can divide them.
	groups := max(1, c.Model.FewestGroups()/l.TP) // on a rank
	kind(nil, mpu.GatherKeys)
	kind(nil, mpu.Ring)
	if groups%l.CP == 0 {
		kind(nil, mpu.ExchangeHeads)
	}
	for heads := 2; heads < l.CP; heads++ {
		if l.CP%heads == 0 && groups%heads == 0 {
			kind([]int{heads, l.CP / heads}, mpu.HeadsInsideRing)
			kind([]int{heads, l.CP / heads}, perLayer(c.Model.NumLayers)...)
		}
	}
	if !hidesDocuments(c) {
		return all
	}
	// Each of them with documents cut on their own.
	for _, way := range slices.Clone(all) {
		all = append(all, func(l *config.Layout) {
			way(l)
			l.ZigZagPerDocument = true
		})
	}
	return all
}

// perLayer has a way for each layer.
func perLayer(layers int) (all []mpu.ContextKind) {
	ways := []mpu.ContextKind{mpu.Ring, mpu.HeadsInsideRing, mpu.GatherKeys}
	for i := range layers {
		all = append(all, ways[i%len(ways)])
	}
	return all
}

// oneSample reports whether every layout must have micro-batches of one sample, for another size is another
// loss: --moe-router-load-balancing-type aux_loss balances each micro-batch by itself, which
// --layout-invariant refuses, --fp8-format has blocks of a micro-batch's tokens, and where samples count
// different numbers of tokens the loss is a mean of means.
func oneSample(c *config.Run) bool {
	return c.FP8.Format != "" || c.Model.Experts != nil && c.Leaves == 0 || c.Data.EODMaskLoss && !c.CalculatePerTokenLoss
}

// mixtures are the variations of a layout's sizes for a model with experts: the experts
// cut over ranks in every way, by either dispatcher. Tensor parallelism of the rest asks
// for sequence parallelism.
func mixtures(c *config.Run, sizes config.Layout) (all []Variant) {
	etps := []int{1}
	if sizes.TP > 1 && !c.Model.LinearBias { // ranks that share an expert would add its biases twice
		etps = append(etps, sizes.TP)
	}
	for ep := 1; ep <= c.Model.Experts.Num; ep++ {
		for _, etp := range etps {
			l := sizes
			l.EP, l.ETP = ep, etp
			if c.Model.Experts.Num%ep != 0 || c.Model.Experts.FFNHiddenSize%etp != 0 || l.WorldSize%(etp*ep*l.PP) != 0 || l.Sizes().Check() != nil {
				continue
			}
			for i, v := range variations(c, l) {
				v.Dispatcher = []string{spec.AllGatherDispatcher, spec.AllToAllDispatcher}[i%2]
				v.Overlap = c.Model.Experts.SharedFFN > 0 && l.EP*l.ETP > 1 && i%4 == 1 && !slices.Contains(v.Recompute.Modules, "shared_experts")
				if (l.TP == 1 || v.Layout.SequenceParallel) && !v.Layout.DistributeSavedActivation && legal(c, v) {
					all = append(all, v)
				}
			}
		}
	}
	return all
}

// everyLayer is computed again.
var everyLayer = model.Recompute{Granularity: "full", Method: "uniform", NumLayers: 1}

// variations of a layout's sizes: sequence parallelism, virtual stages, schedules,
// stages that do not divide evenly, sharding, recompute.
func variations(c *config.Run, sizes config.Layout) []Variant {
	v := &varying{config: c, sizes: sizes, ways: contexts(c, sizes), shardings: []string{""}}
	if sizes.DP*sizes.CP > 1 {
		v.shardings = append(v.shardings, "optim", "optim_grads", "optim_grads_params")
	}
	v.cuts()
	v.again()
	v.tensor()
	v.overlaps()
	return v.all
}

// varying is a layout's sizes with the variations found so far.
type varying struct {
	config    *config.Run
	sizes     config.Layout
	ways      []func(*config.Layout) // to share sequences, taken in turn
	shardings []string
	all       []Variant
}

// add is one more, where it is legal.
func (a *varying) add(change func(*Variant)) {
	v := Variant{Layout: a.sizes}
	a.ways[len(a.all)%len(a.ways)](&v.Layout)
	change(&v)
	v.MicroBatch = microBatch(a.config, &v.Layout)
	if legal(a.config, v) {
		a.all = append(a.all, v)
	}
}

// cuts are those of stages and of the data-parallel ranks' shards.
func (a *varying) cuts() {
	for _, sharding := range a.shardings {
		for _, sequence := range []bool{false, true} {
			if sequence && a.sizes.TP == 1 {
				continue
			}
			for _, stages := range stageCuts(a.config, a.sizes.PP) {
				a.add(func(v *Variant) {
					stages(&v.Layout)
					v.Layout.Sharding, v.Layout.SequenceParallel = sharding, sequence
				})
			}
		}
	}
}

// again computes activations a second time.
func (a *varying) again() {
	for _, r := range []model.Recompute{everyLayer, {Granularity: "full", Method: "block", NumLayers: 1}, {Granularity: "selective", Modules: []string{"core_attn"}}} {
		a.add(func(v *Variant) { v.Recompute, v.Layout.SequenceParallel = r, a.sizes.TP > 1 })
	}
	for _, r := range expertsAgain(a.config) {
		a.add(func(v *Variant) {
			v.Recompute, v.Layout.SequenceParallel = r, a.sizes.TP > 1
			if a.sizes.PP > 1 {
				v.Layout.VP = 2
			}
		})
	}
}

// tensor is what ranks that share layers may do otherwise: products during gathers, activations kept in parts.
func (a *varying) tensor() {
	if a.sizes.TP > 1 {
		a.add(func(v *Variant) { v.Layout.SequenceParallel, v.Layout.TPCommOverlap = true, true })
		a.add(func(v *Variant) { v.Recompute, v.Layout.DistributeSavedActivation = everyLayer, true })
	}
}

// overlaps are exchanges during compute.
func (a *varying) overlaps() {
	if a.sizes.DP*a.sizes.CP == 1 {
		return
	}
	for _, sharding := range a.shardings {
		a.add(func(v *Variant) {
			v.Layout.OverlapGradReduce, v.Layout.Sharding, v.Layout.BucketSize = true, sharding, 5000
		})
	}
	for _, sharding := range []string{"optim", "optim_grads_params"} {
		a.add(func(v *Variant) {
			v.Layout.OverlapGradReduce, v.Layout.OverlapParamGather, v.Layout.Sharding, v.Layout.BucketSize = true, true, sharding, 5000
			if sharding == "optim_grads_params" && len(a.all)%2 == 0 {
				v.Layout.MemoryCentricTiling = 2
			}
		})
	}
}

// expertsAgain are the ways to compute a mixture again, or parts of it.
func expertsAgain(c *config.Run) []model.Recompute {
	if c.Model.Experts == nil {
		return nil
	}
	parts := []string{"moe_act"}
	if c.Model.Experts.SharedFFN > 0 {
		parts = append(parts, "shared_experts")
	}
	return []model.Recompute{{Granularity: "selective", Modules: []string{"moe"}}, {Granularity: "selective", Modules: parts}}
}

// stageCuts are the ways to cut the model over pp stages.
func stageCuts(c *config.Run, pp int) []func(*config.Layout) {
	even := func(vp int, schedule string) func(*config.Layout) {
		return func(l *config.Layout) { l.VP, l.Schedule = vp, schedule }
	}
	if pp == 1 {
		return []func(*config.Layout){even(1, "")}
	}
	cuts := []func(*config.Layout){even(1, ""), even(2, ""), even(4, ""), even(1, "gpipe")}
	ahead := c.Split().Ahead
	for _, text := range []string{unevenStages(c.Model.NumLayers, ahead, pp, false), unevenStages(c.Model.NumLayers, ahead, pp, true)} {
		if text != "" {
			cuts = append(cuts, func(l *config.Layout) { l.StageString = text })
		}
	}
	return cuts
}

// unevenStages is a layout string whose later stages have more layers; with apart
// the embedding and the head have stages of their own; layers of multi-token prediction are with the head.
func unevenStages(layers, ahead, pp int, apart bool) string {
	stages, end := pp, strings.Repeat("m", ahead)+"L"
	if apart {
		stages -= 2
	}
	if stages < 1 || layers < stages {
		return ""
	}
	var parts []string
	for s := range stages {
		parts = append(parts, strings.Repeat("t", layers*(s+1)/stages-layers*s/stages))
	}
	if apart {
		return "E|" + strings.Join(parts, "|") + "|" + end
	}
	if layers%stages == 0 { // make it uneven
		if stages == 1 || len(parts[0]) < 2 {
			return ""
		}
		parts[0], parts[stages-1] = parts[0][1:], parts[stages-1]+"t"
	}
	return "E" + strings.Join(parts, "|") + end
}

// microBatch is the largest of a few sizes that leaves the pipeline enough
// micro-batches; 0: none does.
func microBatch(c *config.Run, l *config.Layout) int {
	if oneSample(c) {
		if c.GlobalBatchSize%l.DP != 0 {
			return 0
		}
		return 1
	}
	for _, size := range []int{3, 2, 1} {
		if c.GlobalBatchSize%(size*l.DP) == 0 && c.GlobalBatchSize/(size*l.DP) >= 2*l.PP {
			return size
		}
	}
	if c.GlobalBatchSize%l.DP == 0 {
		return 1
	}
	return 0
}

// legal reports whether the model can be trained so, and compared: no one rank has both the
// micro-batches that aux_loss goes by and those that global_aux_loss does.
func legal(c *config.Run, v Variant) bool {
	m, l := &c.Model, &v.Layout
	if l.DP > 1 && globalLoss(c) >= 0 && slices.Contains(m.Experts.Balancing, spec.AuxLoss) {
		return false
	}
	if c.Tuning.Prefers() != nil && l.CP > 1 || (c.Adapter.Given() || c.FP8.Format != "") && l.MemoryCentricTiling > 0 || c.Adapter.DoRA && l.Sharding == string(optimizer.OptimGradsParams) {
		return false // refused
	}
	shares := func(a, b int) bool { return a%b == 0 || b%a == 0 }
	if v.MicroBatch == 0 || m.NumAttentionHeads%l.TP != 0 || !shares(m.NumQueryGroups, l.TP) || m.OneStage() != "" && l.PP > 1 || m.Full != nil && m.NumQueryGroups != m.Full.NumQueryGroups && (m.NumQueryGroups%l.TP != 0 || m.Full.NumQueryGroups%l.TP != 0) || m.FFNHiddenSize%l.TP != 0 || c.SeqLength%(l.TP*l.CP) != 0 {
		return false
	}
	full := *c
	full.Layout, full.MicroBatchSize = *l, v.MicroBatch
	if _, err := full.Split().Parts(); err != nil {
		return false
	}
	return full.PipelineSchedule(c.GlobalBatchSize/(v.MicroBatch*l.DP), false).Check() == nil
}
