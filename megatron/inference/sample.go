package inference

import (
	"cmp"
	"math"
	"slices"

	"monotron/csrc/device"
)

// SampleOptions say how the next token is chosen.
type SampleOptions struct {
	MaxNew        int
	Temperature   float64 // 0: greedy
	TopK          int     // 0: all
	TopP          float64 // 0 or 1: all
	NoRepeatNgram int     // 0: repeats are fine
	Stop          int32   // the sequence ends with it; negative: none
	Seed          uint64
	Number        uint32         // of this sample among those of a prompt: each draws its own
	Emit          func(id int32) // called with each token as it comes; may be nil
}

// Sampled is a continuation and the log-probability of each of its tokens.
type Sampled struct {
	IDs      []int32
	LogProbs []float64
}

// Sample continues prompt.
func (g *Generator) Sample(prompt []int32, o SampleOptions) (*Sampled, error) {
	if err := g.CheckPrompt(prompt, o.MaxNew); err != nil {
		return nil, err
	}
	s := g.newSession(int64(len(prompt)+o.MaxNew), 1)
	defer s.close()
	ids := append([]int32(nil), prompt...)
	result := &Sampled{}
	feed := prompt
	for n := range o.MaxNew {
		logits, err := s.extend([][]int32{feed})
		if err != nil {
			return nil, err
		}
		lp := logSoftmax(logits[0])
		banRepeats(lp, ids, o.NoRepeatNgram)
		id := o.choose(lp, n)
		result.IDs, result.LogProbs = append(result.IDs, id), append(result.LogProbs, lp[id])
		if o.Emit != nil {
			o.Emit(id)
		}
		if id == o.Stop && o.Stop >= 0 {
			break
		}
		ids = append(ids, id)
		feed = []int32{id}
	}
	return result, nil
}

// choose picks the nth new token.
func (o *SampleOptions) choose(logProbs []float64, n int) int32 {
	if o.Temperature == 0 {
		return int32(argmax(logProbs))
	}
	order := make([]int, len(logProbs))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(cmp.Compare(logProbs[b], logProbs[a]), a-b) })
	if o.TopK > 0 {
		order = order[:min(o.TopK, len(order))]
	}
	weights := make([]float64, len(order))
	total := 0.0
	for i, id := range order {
		weights[i] = math.Exp((logProbs[id] - logProbs[order[0]]) / o.Temperature)
		total += weights[i]
	}
	if o.TopP > 0 && o.TopP < 1 {
		order, total = nucleus(order, weights, total, o.TopP)
	}
	w := device.Philox(device.StreamKey(o.Seed, "generate"), [4]uint32{uint32(n), o.Number})
	target := float64(w[0]) / (1 << 32) * total
	for i, id := range order {
		if target -= weights[i]; target < 0 {
			return int32(id)
		}
	}
	return int32(order[0])
}

// nucleus keeps the fewest most likely tokens whose mass reaches p.
func nucleus(order []int, weights []float64, total, p float64) ([]int, float64) {
	mass := 0.0
	for i := range order {
		if mass += weights[i]; mass >= p*total {
			return order[:i+1], mass
		}
	}
	return order, mass
}

func argmax(x []float64) int {
	best := 0
	for i, v := range x {
		if v > x[best] {
			best = i
		}
	}
	return best
}
