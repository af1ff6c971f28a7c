package preference

import (
	"slices"
	"strings"
)

// SFT in a list of losses is the negative log-likelihood of the better answers, the mean over their tokens
// in the global batch.
const SFT = "sft"

// Mix is the weighted sum of losses of a method by their names, as TRL's lists of loss types (MPO: Wang et
// al., arXiv 2411.10442); without weights each is 1. sft is the weight of SFT, which no row has for itself.
// nil: a name is not a loss of the method, or the list has SFT alone.
func Mix(method string, names []string, weights []float64) (l *Loss, sft float64) {
	if len(names) == 0 {
		return Of(method, ""), 0
	}
	// Each name with its weight; SFT apart, since it has no formula for a row.
	var parts []*Loss
	var by []float64
	for i, name := range names {
		weight := 1.0
		if i < len(weights) {
			weight = weights[i]
		}
		if name == SFT && len(names) > 1 {
			sft += weight
			continue
		}
		one := Of(method, name)
		if one == nil {
			return nil, 0
		}
		parts, by = append(parts, one), append(by, weight)
	}
	// One loss with weight 1 is itself.
	switch {
	case len(parts) == 0:
		return nil, 0
	case len(parts) == 1 && by[0] == 1:
		return parts[0], sft
	}
	return sum(parts, by), sft
}

// sum is a loss of several.
func sum(parts []*Loss, weights []float64) *Loss {
	l := &Loss{}
	// It needs what any of its parts needs.
	var names []string
	for _, p := range parts {
		names = append(names, p.Name)
		l.Reference, l.Smoothing, l.Average = l.Reference || p.Reference, l.Smoothing || p.Smoothing, l.Average || p.Average
	}
	l.Name = strings.Join(names, "+")
	// Losses of pairs, or of single answers; their slopes add like their values.
	if parts[0].Paired() {
		l.pair = func(o *Options, chosen, rejected Answer) (loss, byChosen, byRejected float64) {
			for i, p := range parts {
				x, c, r := p.pair(o, chosen, rejected)
				loss, byChosen, byRejected = loss+weights[i]*x, byChosen+weights[i]*c, byRejected+weights[i]*r
			}
			return loss, byChosen, byRejected
		}
		return l
	}
	l.mismatched = slices.ContainsFunc(parts, func(p *Loss) bool { return p.Mismatched() })
	l.single = func(o *Options, a Answer, good bool, kl float64) (loss, slope float64) {
		for i, p := range parts {
			x, s := p.single(o, a, good, kl)
			loss, slope = loss+weights[i]*x, slope+weights[i]*s
		}
		return loss, slope
	}
	return l
}

// Includes reports whether a loss is one of a name, or has it among its parts.
func (l *Loss) Includes(name string) bool { return slices.Contains(strings.Split(l.Name, "+"), name) }
