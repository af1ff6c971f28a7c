package inference

import (
	"math"
	"slices"
	"sort"

	"monotron/megatron/model"
)

// BeamOptions are those of transformers' beam search, whose rules Beam follows.
type BeamOptions struct {
	Beams         int
	MaxNew        int
	LengthPenalty float64 // score = Σ log p / length^penalty
	EarlyStopping bool    // stop as soon as Beams sequences are finished
	NoRepeatNgram int
	Ends          []int32 // ids that end a sequence
}

// Beam is one finished sequence, best first; IDs are the generated ones.
type Beam struct {
	IDs   []int32
	Score float64
}

// hypothesis is a running sequence.
type hypothesis struct {
	ids []int32 // generated
	sum float64 // Σ log p
}

// candidate extends the hypothesis `parent` by a token.
type candidate struct {
	parent int
	id     int32
	sum    float64
}

// kept is how many candidates a step keeps: enough that Beams of them continue.
func (o *BeamOptions) kept() int { return max(2, 1+len(o.Ends)) * o.Beams }

// Beam searches for the sequences of highest score after prompt. Each step keeps
// the best candidates, 2·Beams with one end: one that ends counts when it ranks among the first
// Beams, the best others continue.
func (g *Generator) Beam(prompt []int32, o BeamOptions) ([]Beam, error) {
	if err := g.CheckPrompt(prompt, o.MaxNew); err != nil {
		return nil, err
	}
	s := g.newSession(len(prompt)+o.MaxNew, o.Beams)
	defer s.close()
	// One hypothesis, the prompt, becomes up to Beams after the first step; s has a cache for each.
	running := []hypothesis{{}}
	feed := [][]int32{prompt}
	var finished []Beam
	for n := 1; n <= o.MaxNew; n++ {
		// logits: of each running hypothesis, for its last token (first: the prompt's).
		logits, err := s.logits(feed)
		if err != nil {
			return nil, err
		}
		var ended []Beam
		var parents []int
		running, parents, ended = o.advance(o.expand(prompt, running, logits), running)
		finished = best(append(finished, ended...), o.Beams)
		if o.done(running, finished, n) {
			return finished, nil
		}
		// The caches follow the hypotheses that continue, of which each has one new token.
		s.branch(parents)
		feed = feed[:0]
		// Hypotheses that reached the limit count too.
		for _, h := range running {
			feed = append(feed, h.ids[n-1:])
		}
	}
	for _, h := range running {
		finished = append(finished, o.finish(h.ids, h.sum))
	}
	return best(finished, o.Beams), nil
}

// logits extends every text and brings the logits after it here.
func (s *session) logits(feed [][]int32) (all [][]float32, err error) {
	err = s.extend(feed, func(_ int, logits model.Tensor) error {
		rows, err := s.g.onHost(logits)
		if err != nil {
			return err
		}
		for _, row := range rows {
			if err := checkLogits(row); err != nil {
				return err
			}
		}
		all = append(all, rows...)
		return nil
	})
	return all, err
}

// expand lists the best one-token extensions, best first; of equals the
// earlier sequence and lower id.
func (o *BeamOptions) expand(prompt []int32, running []hypothesis, logits [][]float32) []candidate {
	most := o.kept()
	top := make([]candidate, 0, most+1)
	for j, h := range running {
		lp := LogSoftmax(logits[j])
		for _, id := range repeats(append(append([]int32(nil), prompt...), h.ids...), o.NoRepeatNgram) {
			lp[id] = math.Inf(-1)
		}
		for id, p := range lp {
			sum := h.sum + p
			if len(top) == most && sum <= top[len(top)-1].sum {
				continue
			}
			at := sort.Search(len(top), func(i int) bool { return top[i].sum < sum })
			top = append(top, candidate{})
			copy(top[at+1:], top[at:])
			top[at] = candidate{j, int32(id), sum}
			top = top[:min(len(top), most)]
		}
	}
	return top
}

// advance splits candidates into those that continue and those that end.
func (o *BeamOptions) advance(cs []candidate, running []hypothesis) (next []hypothesis, parents []int, ended []Beam) {
	for rank, c := range cs {
		ids := append(append([]int32(nil), running[c.parent].ids...), c.id)
		switch {
		case slices.Contains(o.Ends, c.id):
			if rank < o.Beams {
				ended = append(ended, o.finish(ids, c.sum))
			}
		case len(next) < o.Beams:
			next, parents = append(next, hypothesis{ids, c.sum}), append(parents, c.parent)
		}
	}
	return next, parents, ended
}

// finish scores a sequence; its stop token counts in the length.
func (o *BeamOptions) finish(ids []int32, sum float64) Beam {
	return Beam{ids, sum / math.Pow(float64(len(ids)), o.LengthPenalty)}
}

// done reports whether no running sequence can still matter after n tokens.
func (o *BeamOptions) done(running []hypothesis, finished []Beam, n int) bool {
	if len(running) == 0 {
		return true
	}
	if len(finished) < o.Beams {
		return false
	}
	hope := running[0].sum / math.Pow(float64(n), o.LengthPenalty)
	return o.EarlyStopping || hope <= finished[len(finished)-1].Score
}

func best(beams []Beam, n int) []Beam {
	sort.SliceStable(beams, func(a, b int) bool { return beams[a].Score > beams[b].Score })
	return beams[:min(n, len(beams))]
}
