package training

import (
	"fmt"
	"strings"

	"monotron/csrc/device"
	"monotron/megatron/engine"
	"monotron/megatron/model"
	"monotron/megatron/telemetry"
)

// mixtures is what layers of experts tell: the losses that are asked for, as means over
// those layers, and the layers' own; tokens: of the step.
func (l *logger) mixtures(m *engine.Mixtures, tokens int) (means []telemetry.Value, layers []telemetry.MixtureLayer) {
	if m == nil {
		return nil, nil
	}
	mixed := 0.0
	for n, given := range m.Tokens {
		if !l.config.Model.MixtureAt(n) {
			continue
		}
		mixed++
		layer := telemetry.MixtureLayer{Number: n, Tokens: given, Chosen: float64(tokens * l.config.Model.Experts.TopK * l.config.Model.Uses(n)), Bytes: m.Bytes[n]}
		for _, loss := range model.OwnLosses(l.config.Model.Experts) {
			layer.Losses = append(layer.Losses, telemetry.Value{Name: loss.String(), Value: m.Losses[loss][n]})
		}
		layers = append(layers, layer)
	}
	for i, loss := range model.OwnLosses(l.config.Model.Experts) {
		sum := 0.0
		for _, layer := range layers {
			sum += layer.Losses[i].Value
		}
		means = append(means, telemetry.Value{Name: loss.String(), Value: sum / mixed})
	}
	return means, layers
}

// exchanges records, where --log-moe-exchanges asks for it, how many tokens each micro-batch
// sends to the experts of each rank, and gets.
func (r *Run) exchanges() engine.Observer {
	observer := r.Engine.Observer
	if !r.Config.Log.Exchanges {
		return observer
	}
	observer.Routed = func(layer int, x model.Routing) {
		if e := x.Exchange; e.Received != nil {
			r.log.notes.At(r.log.current).Info("rank %d: layer %d, micro-batch %d: sent %s, received %s",
				r.rank.Number, layer, r.Engine.Micro(), counts(e.Sent), counts(e.Received))
		}
	}
	return observer
}

func counts(tokens []int64) string {
	return "[" + strings.Trim(strings.Join(strings.Fields(fmt.Sprint(tokens)), " "), "[]") + "]"
}

// tellExperts says what the activations of experts take at most: nobody knows before a step
// how many tokens choose those of one rank.
func (r *Run) tellExperts() {
	m, l := &r.Config.Model, &r.Config.Layout
	if m.Experts == nil {
		return
	}
	tokens := r.Config.MicroBatchSize * r.Config.SeqLength
	if l.SequenceParallel {
		tokens /= l.TP
	}
	even, most := m.Slots(tokens, l.Sizes())
	size := m.SlotBytes(r.rank.Sizes.ExpertTP(), r.Engine.DType.Size())
	r.log.note("experts: the experts of a rank get %d tokens per micro-batch and layer if the load is even (%s of activations), and at most %d (%s)",
		even, device.Size(even*size), most, device.Size(most*size))
}
