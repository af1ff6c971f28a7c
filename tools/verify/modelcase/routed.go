package modelcase

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/megatron/model"
)

// routedNumbers is what a layer's router said of the rows of all micro-batches, samples first.
type routedNumbers struct {
	logits   []float64 // [rows, experts]
	probs    []float64 // [rows, experts]: weights of sent choices, else 0
	sent     []float64 // [rows, experts]: 1 where a row is sent there
	chosen   []float64 // [rows, k], ascending
	micros   [][]int   // rows sent to each expert, a micro-batch
	received [][]int   // rows that each expert here got, a micro-batch
}

// routings collects by layer.
type routings map[int]*routedNumbers

// add keeps a micro-batch of so many samples.
func (all routings) add(d *device.Device, layer, batch int, r model.Routing) {
	n := all[layer]
	if n == nil {
		n = &routedNumbers{}
		all[layer] = n
	}
	experts, k := int(r.Logits.Shape[1]), int(r.Experts.Shape[1])
	wide := func(t device.Tensor, width int) []float64 { return batchFirst(read(d, t), batch, width) }
	chosen, sent, weights := wide(r.Experts, k), wide(r.Sent, k), wide(r.Weights, k)
	n.logits = append(n.logits, wide(r.Logits, experts)...)
	counts := make([]int, experts)
	for at := 0; at < len(chosen); at += k {
		n.row(experts, chosen[at:at+k], sent[at:at+k], weights[at:at+k], counts)
	}
	n.micros = append(n.micros, counts)
	var received []int
	offsets := device.ReadSlice[int32](d, r.Offsets)
	for i := range offsets[1:] {
		received = append(received, int(offsets[i+1]-offsets[i]))
	}
	n.received = append(n.received, received)
}

// of is a layer's as cases count them; empty: the layer has no router here.
func (all routings) of(layer string) *routedNumbers {
	if i, err := strconv.Atoi(layer); err == nil && all[i] != nil {
		return all[i]
	}
	return &routedNumbers{}
}

// row adds one token's choices.
func (n *routedNumbers) row(experts int, chosen, sent, weights []float64, counts []int) {
	probs, mask := make([]float64, experts), make([]float64, experts)
	for i, e := range sent {
		if e >= 0 {
			probs[int(e)], mask[int(e)] = weights[i], 1
			counts[int(e)]++
		}
	}
	n.chosen = append(n.chosen, slices.Sorted(slices.Values(chosen))...)
	n.probs, n.sent = append(n.probs, probs...), append(n.sent, mask...)
}

// compareRouted compares router.LAYER.WHAT. Padding to capacity changes nothing that is
// computed, so it is not done here: of its map nothing is compared.
func (r *run) compareRouted(t *trial, all routings, name string, expected *tensors) error {
	parts := strings.Split(name, ".")
	if len(parts) != 3 {
		return exitcode.Errorf(exitcode.BadData, "%s: %q is not of the form router.LAYER.WHAT", expected.Path, name)
	}
	layer, err := strconv.Atoi(parts[1])
	n := all[layer]
	if err != nil || n == nil {
		return exitcode.Errorf(exitcode.BadData, "%s: %q: layer %s of the model has no router", expected.Path, name, parts[1])
	}
	// Numbers within a tolerance; choices exactly.
	switch parts[2] {
	case "logits":
		return r.compare("routers", name, n.logits, expected, "logits_abs")
	case "probs":
		return r.compare("routers", name, n.probs, expected, "logits_abs")
	case "weights":
		return r.compareWeights(t, n, layer, expected)
	case "experts":
		want, err := expected.Int64(name)
		if err != nil {
			return err
		}
		k := t.config.Model.Experts.TopK
		for at := 0; at+k <= len(want); at += k {
			slices.Sort(want[at : at+k]) // some cases have them by weight
		}
		r.compareExactly("routers", name, n.chosen, want)
		return nil
	case "map":
		if t.config.Model.Experts.PadToCapacity {
			return nil
		}
		want, err := expected.Int64(name)
		if err == nil {
			r.compareExactly("routers", name, n.sent, want)
		}
		return err
	}
	return exitcode.Errorf(exitcode.BadData, "%s: %q is not a router output", expected.Path, name)
}

// compareWeights compares the weights of a layer's choices, each where its expert stands.
func (r *run) compareWeights(t *trial, n *routedNumbers, layer int, expected *tensors) error {
	name := fmt.Sprintf("router.%d.", layer)
	experts, err := expected.Int64(name + "experts")
	if err != nil {
		return err
	}
	weights, err := expected.Float64(name + "weights")
	if err != nil {
		return err
	}
	limit, err := r.tolerance("logits_abs")
	if err != nil {
		return err
	}
	k, width := t.config.Model.Experts.TopK, t.config.Model.Experts.Num
	want := make([]float64, len(n.probs))
	for i, e := range experts[:min(len(experts), len(weights))] {
		if at := i/k*width + int(e); e >= 0 && at < len(want) {
			want[at] = weights[i]
		}
	}
	r.report.within("routers", name+"weights", n.probs, want, limit)
	return nil
}

// compareExactly compares integers.
func (r *run) compareExactly(group, name string, got []float64, want []int64) {
	differ := 0
	for i := range min(len(got), len(want)) {
		if got[i] != float64(want[i]) {
			differ++
		}
	}
	r.report.exact(group, name, fmt.Sprintf("%d numbers, %d others", len(got), differ), fmt.Sprintf("%d numbers, 0 others", len(want)))
}
