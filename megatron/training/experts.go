package training

import (
	"fmt"
	"strings"

	"monotron/csrc/device"
	"monotron/megatron/engine"
	"monotron/megatron/model"
	"monotron/megatron/report"
)

// mixtures is what layers of experts tell: the losses that are asked for, as means over
// those layers, and the layers' own; tokens: of the step.
func (l *logger) mixtures(m *engine.Mixtures, tokens int) (means []report.Value, layers []report.MixtureLayer) {
	if m == nil {
		return nil, nil
	}
	mixed := 0.0
	for n, given := range m.Tokens {
		if !l.config.Model.MixtureAt(n) {
			continue
		}
		mixed++
		layer := report.MixtureLayer{Number: n, Tokens: given, Chosen: float64(tokens * l.config.Model.Experts.TopK), Bytes: m.Bytes[n]}
		for _, loss := range model.OwnLosses(l.config.Model.Experts) {
			layer.Losses = append(layer.Losses, report.Value{Name: loss.String(), Value: m.Losses[loss][n]})
		}
		layers = append(layers, layer)
	}
	for i, loss := range model.OwnLosses(l.config.Model.Experts) {
		sum := 0.0
		for _, layer := range layers {
			sum += layer.Losses[i].Value
		}
		means = append(means, report.Value{Name: loss.String(), Value: sum / mixed})
	}
	return means, layers
}

// tellable is the mean of tokens an expert from which on an uneven step is no chance.
const tellable = 16

// tellUneven says, once of each expert, that it got no token in a step, or more than
// --moe-imbalance-limit times an even part.
func (l *logger) tellUneven(layers []report.MixtureLayer) {
	for _, layer := range layers {
		total := 0.0
		for _, n := range layer.Tokens {
			total += n
		}
		mean := total / float64(len(layer.Tokens))
		if mean < tellable {
			continue
		}
		for i, n := range layer.Tokens {
			l.tellExpert(layer.Number, i, n, mean)
		}
	}
}

// tellExpert says it of one expert, where there is something to say.
func (l *logger) tellExpert(layer, expert int, tokens, mean float64) {
	limit, what := l.config.Log.ImbalanceLimit, ""
	switch {
	case tokens == 0:
		what = "got no token"
	case limit > 0 && tokens > limit*mean:
		what = fmt.Sprintf("got %.1f times an even part, more than --moe-imbalance-limit %g", tokens/mean, limit)
	}
	at := [2]int{layer, expert}
	if what == "" || l.uneven[at] {
		return
	}
	if l.uneven == nil {
		l.uneven = map[[2]int]bool{}
	}
	l.uneven[at] = true
	if l.rank.First() {
		l.notes.At(l.current).Warn("layer %d: expert %d %s (%.0f tokens of %.0f in an even step); it is said once", layer, expert, what, tokens, mean)
	}
}

// exchanges tells, where --log-moe-exchanges asks for it, how many tokens each micro-batch
// sends to the experts of each rank, and gets.
func (r *Run) exchanges() (look engine.Look) {
	if !r.Config.Log.Exchanges {
		return look
	}
	look.Routed = func(layer int, x model.Routing) {
		if e := x.Exchange; e.Received != nil {
			r.log.notes.At(r.log.current).Info("rank %d: layer %d, micro-batch %d: sent %s, received %s",
				r.rank.Number, layer, r.Engine.Micro(), counts(e.Sent), counts(e.Received))
		}
	}
	return look
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
	even, most := m.Places(tokens, l.Sizes())
	size := m.PlaceBytes(r.rank.Sizes.ExpertTP(), r.Engine.DType.Size())
	r.log.note("experts: a micro-batch chooses those of a rank %d times a layer where it is even (%s of activations), %d times at most (%s)",
		even, device.Size(even*size), most, device.Size(most*size))
}
