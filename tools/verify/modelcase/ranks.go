package modelcase

import (
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"monotron/internal/exitcode"
	"monotron/megatron/arguments"
	"monotron/megatron/checkpoint"
	"monotron/megatron/spec"
	"monotron/mpu"
)

// runRanks: a parallel layout: every rank's parameters under Megatron's names,
// their shards and gradients, the order of a step, the losses and the curve, on
// goroutine ranks of this process. Gradients and parameters of the complete model are
// compared with those of the case's model.
func (r *run) runRanks() error {
	var want modelExpected
	if err := r.full(&want); err != nil {
		return err
	}
	c, err := r.modelCase()
	if err != nil {
		return err
	}
	// The layout's ranks run; each is compared by itself, then all together.
	w, err := r.world(c, max(1, len(want.Curve)))
	if err != nil {
		return err
	}
	all, err := w.run(r.open)
	if err != nil {
		return err
	}
	if len(all) != len(r.Ranks) {
		return r.bad("the case lists %d ranks, but its flags give %d", len(r.Ranks), len(all))
	}
	for i, s := range all {
		r.compareLayout(&w.config.Model, i, s)
		if m := &w.config.Model; m.Experts != nil {
			r.compareTokens(m, i, s)
		}
	}
	if err := r.compareShards(all); err != nil {
		return err
	}
	return r.compareModel(c, w, all, want)
}

// world reads everything that the layout's ranks need.
func (r *run) world(c *caseFile, steps int) (*world, error) {
	// The flags of the case.
	line := append(words(r.MegatronFlags), "--world-size", fmt.Sprint(max(1, r.World)))
	config, _, err := arguments.ParseWith(arguments.Options{Partial: true, Layouts: true, Experts: true}, line)
	if err == nil {
		err = r.small(&config)
	}
	if err == nil && config.Layout.Sizes().World() > maxRanks {
		err = r.bad("%d ranks are too many; a case may have at most %d", config.Layout.Sizes().World(), maxRanks)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: the case's flags: %w", r.Name, err)
	}
	megatrons(&config)
	// Weights and batches, as many as the curve has steps.
	w := &world{config: config, steps: steps}
	if w.weights, _, err = r.openWeights(c); err != nil {
		return nil, err
	}
	if w.batches, err = r.readBatches(&config); err != nil {
		return nil, err
	}
	if len(w.batches) < steps {
		return nil, r.bad("the curve has %d iterations, but there are batches for only %d", steps, len(w.batches))
	}
	if rows := len(w.batches[0].Tokens); rows != config.GlobalBatchSize || rows%(config.MicroBatchSize*config.Layout.Sizes().DP) != 0 {
		return nil, r.bad("a batch has %d rows, but the flags give %d rows in micro-batches of %d per rank", rows, config.GlobalBatchSize, config.MicroBatchSize)
	}
	return w, nil
}

// maxRanks bounds the goroutines of a case.
const maxRanks = 64

// compareLayout compares coordinates, names, order, shapes, decay groups and the step's
// order of a rank.
func (r *run) compareLayout(m *spec.Model, i int, s *seen) {
	want, group := r.Ranks[i], fmt.Sprintf("layout of rank %d", i)
	r.report.exact(group, "place", []int{s.coordinates.TP, s.coordinates.PP, s.coordinates.DP}, []int{want.TP, want.PP, want.DP})
	var names, noDecay []string
	for _, p := range s.params {
		if slices.Contains(names, p.named) {
			continue // the rows of a query group that ranks share are a parameter of their own
		}
		names = append(names, p.named)
		if p.param.NoDecay {
			noDecay = append(noDecay, p.named)
		}
		if !s.splits(p) {
			r.report.exact(group, p.named+" shape", p.shape, want.Parameters.shapes[p.named])
		}
	}
	slices.Sort(noDecay)
	theirs := want.Parameters.names
	if m.Tied && m.MTP != nil && !slices.Contains(names, checkpoint.OutputLayer) {
		// Megatron has it, and never uses it.
		theirs = slices.DeleteFunc(slices.Clone(theirs), func(name string) bool { return name == checkpoint.OutputLayer })
	}
	r.report.exact(group, "parameters in order", names, theirs)
	if want.NoDecay != nil {
		r.report.exact(group, "no_weight_decay", noDecay, want.NoDecay)
	}
	r.report.exact(group, "order of a step", s.order, want.Order)
}

// compareTokens compares where a rank sent its tokens, and what its experts got. Padding to
// capacity is not done here, and counts with it are not compared.
func (r *run) compareTokens(m *spec.Model, i int, s *seen) {
	want, group := r.Ranks[i], fmt.Sprintf("tokens of rank %d", i)
	r.report.exact(group, "expert-parallel number", s.experts.EP, want.EP)
	if m.Experts.PadToCapacity {
		return
	}
	for _, layer := range sorted(want.Routed) {
		r.report.exact(group, "routed of layer "+layer, s.routed.of(layer).micros, want.Routed[layer])
	}
	for _, layer := range sorted(want.Received) {
		r.report.exact(group, "received of layer "+layer, s.routed.of(layer).received, want.Received[layer])
	}
}

// splits reports whether the rank holds two parts of p's tensor. Megatron cuts
// such a tensor evenly instead, through the query groups.
func (s *seen) splits(p *value) bool {
	n := 0
	for _, other := range s.params {
		if other.named == p.named {
			n++
		}
	}
	return n > 1
}

// compareShards compares what each rank had with the case's file of it, where
// the case has one.
func (r *run) compareShards(all []*seen) error {
	path := r.path("", "ranks.safetensors")
	if _, err := os.Stat(path); os.IsNotExist(err) {
		return nil
	}
	file, err := openTensors(path)
	if err != nil {
		return err
	}
	defer file.Close()
	params := "param_after_1_rel_to_tensor_norm"
	if _, given := r.Tolerance[params]; !given { // initial values, which are only cut
		params = "gradient_rel_to_tensor_norm"
	}
	// Parameters, with their initial or updated values, and gradients.
	kinds := map[string]shardKind{
		"param": {func(p *value) []float64 { return p.start }, started, params},
		"grad":  {func(p *value) []float64 { return p.grad }, finalGradients, "gradient_rel_to_tensor_norm"},
	}
	for _, name := range file.Names() {
		// rank<N>.<kind>.<parameter>, or rank<N>.token_loss
		number, rest, _ := strings.Cut(strings.TrimPrefix(name, "rank"), ".")
		i, err := strconv.Atoi(number)
		if err != nil || i < 0 || i >= len(all) {
			return exitcode.Errorf(exitcode.BadData, "%s: %q does not belong to one of the %d ranks", path, name, len(all))
		}
		kind, named, _ := strings.Cut(rest, ".")
		k, known := kinds[kind]
		switch {
		case known:
			shard, err := k.shard(all, i, named)
			if err != nil {
				return exitcode.Errorf(exitcode.BadData, "%s: %q: %w", path, name, err)
			}
			if err := r.compare(kind+" shards", name, shard, file, k.tolerance); err != nil {
				return err
			}
		case rest == "token_loss":
			if err := r.compare("forward", name, all[i].tokenLoss, file, "token_loss_abs"); err != nil {
				return err
			}
		default:
			return exitcode.Errorf(exitcode.BadData, "%s: a layout case cannot compare %q", path, name)
		}
	}
	return nil
}

// shardKind is what shards are of.
type shardKind struct {
	local     func(*value) []float64
	parts     func(*seen) []boxes
	tolerance string
}

// shard is rank i's shard of a tensor as Megatron cuts it.
func (k shardKind) shard(all []*seen, i int, named string) ([]float64, error) {
	s := all[i]
	at := slices.IndexFunc(s.params, func(p *value) bool { return p.named == named })
	if at < 0 {
		return nil, fmt.Errorf("the rank has no such parameter")
	}
	p := s.params[at]
	if !s.splits(p) {
		return k.local(p), nil
	}
	full := assembled(all, p.Name, k.parts)
	sharers := 0 // ranks of this stage and copy of the model
	for _, other := range all {
		if other.coordinates.PP == s.coordinates.PP && other.coordinates.DP == s.coordinates.DP {
			sharers++
		}
	}
	n := len(full) / sharers
	return full[n*s.coordinates.TP:][:n], nil
}

// compareModel compares the losses, the curve, and gradients and parameters of the
// complete model with those of the case's model, as far as the layout keeps its numbers.
func (r *run) compareModel(c *caseFile, w *world, all []*seen, want modelExpected) error {
	file, err := openTensors(c.path("", "expected.safetensors"))
	if err != nil {
		return err
	}
	defer file.Close()
	// A layout with local losses or capacities changes numbers: the case says which stay.
	sameLoss, sameGradient, err := r.keeps(c, want)
	if err != nil {
		return err
	}
	if sameLoss {
		if err := r.compare("forward", "token_loss", w.tokenLosses(all), file, "token_loss_abs"); err != nil {
			return err
		}
	}
	steps := reported(all)
	if err := r.compareLosses(steps[0].Result, want); err != nil {
		return err
	}
	for i, point := range want.Curve {
		if err := r.comparePoint(&w.config.Model, point, steps[i]); err != nil {
			return err
		}
	}
	if !sameGradient {
		return nil
	}
	return r.compareTensors(c, w, all, file)
}

// keeps reports whether the layout has the losses and gradients of the case's model: those of
// experts are others where ranks see other micro-batches, or drop by themselves.
func (r *run) keeps(c *caseFile, want modelExpected) (loss, gradient bool, err error) {
	var model modelExpected
	if err := c.expected(&model); err != nil {
		return false, false, err
	}
	near, err := r.tolerance("curve_loss_abs", "token_loss_abs")
	if err != nil {
		return false, false, err
	}
	rel, err := r.tolerance("curve_grad_norm_rel", "gradient_rel_to_tensor_norm")
	if err != nil {
		return false, false, err
	}
	loss = math.Abs(model.Loss-want.Loss) <= near
	return loss, loss && math.Abs(model.GradNorm-want.GradNorm) <= rel*want.GradNorm, nil
}

// reported is what the last rank's steps reported, with every rank's biases.
func reported(all []*seen) []stepSeen {
	steps := slices.Clone(all[len(all)-1].steps)
	for i := range steps {
		steps[i].bias = biases{}
		for _, s := range all {
			maps.Copy(steps[i].bias, s.steps[i].bias)
		}
	}
	return steps
}

// compareTensors compares every gradient and parameter of the file.
func (r *run) compareTensors(c *caseFile, w *world, all []*seen, file *tensors) error {
	for _, name := range file.Names() {
		// Which ranks' tensors a name of the file stands for.
		kind, theirs, _ := strings.Cut(name, ".")
		var parts func(*seen) []boxes
		tolerance, group := kind+"_rel_to_tensor_norm", kind
		switch iteration := 0; {
		case kind == "grad":
			parts, tolerance, group = finalGradients, "gradient_rel_to_tensor_norm", "gradients"
		case scan(kind, "param_after_%d", &iteration) && iteration <= w.steps && slices.Contains(keptAfter, iteration):
			parts = after(iteration)
		default:
			continue
		}
		// The complete tensor, from their parts.
		got, err := w.weights.names.ofFile(theirs, func(global string) ([]float64, error) {
			x := assembled(all, global, parts)
			if x == nil {
				return nil, exitcode.Errorf(exitcode.BadData, "the ranks have no %s, from which %q is computed", global, theirs)
			}
			return x, nil
		})
		if err != nil {
			return err
		}
		if err := r.compareExcluding(c, group, name, theirs, got, file, tolerance); err != nil {
			return err
		}
	}
	return nil
}

func scan(text, format string, out *int) bool {
	n, err := fmt.Sscanf(text, format, out)
	return err == nil && n == 1
}

// compareExcluding is compare by norm; of parameters less the elements that the
// model's case excludes.
func (r *run) compareExcluding(c *caseFile, group, name, theirs string, got []float64, file *tensors, tolerance string) error {
	want, err := file.Float64(name)
	if err != nil {
		return err
	}
	limit, err := r.tolerance(tolerance)
	if err != nil {
		return err
	}
	var skip []bool
	if group != "gradients" {
		if skip, err = c.excluded(theirs, len(want)); err != nil {
			return err
		}
	}
	r.report.byNorm(group, name, without(got, skip), without(want, skip), limit)
	return nil
}

// fillPieces copies a global tensor's values to its pieces of a local buffer.
func fillPieces(host []float32, t mpu.Stored, global []float32) {
	for _, piece := range t.Pieces {
		piece.Runs(t.Global, func(at, local, n int64) { copy(host[local:local+n], global[at:at+n]) })
	}
}
