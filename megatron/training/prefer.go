package training

import (
	"monotron/dataset/sft"
	"monotron/megatron/config"
	"monotron/megatron/engine"
	"monotron/megatron/preference"
)

// preferring is the objective of preference tuning on one rank: the loss of rows by the
// log-probabilities of their answers, which it sums from the tokens' losses of complete sequences.
// What depends on other rows of the global batch is found before its step, so that no split into
// micro-batches or ranks changes it.
type preferring struct {
	settings  config.Preference
	loss      *preference.Loss
	allTokens bool // the negative log-likelihood is of prompts too

	reference map[*sft.Preferences][][2]float64 // by row: of its answers; nil: none is needed, or it is not known yet
	set       *sft.Preferences                  // whose rows go through

	mismatched bool    // what goes through is the rows' mismatched answers
	kl         float64 // mean log ratio of the global batch's mismatched answers
	nll        float64 // weight of a token's negative log-likelihood in the sum of the samples' losses
	tally      tally

	collect func(row int64, sequence int32, answer int, logp float64) // where given, nothing is weighed
}

// newPreferring is the objective of a tuning that prefers.
func newPreferring(t *config.Tuning) *preferring {
	loss := t.Prefers()
	return &preferring{settings: t.Preference, loss: loss, allTokens: loss.Name == "orpo", reference: map[*sft.Preferences][][2]float64{}}
}

// Weigh is that of engine.Objective.
func (p *preferring) Weigh(m *engine.Micro, losses []float32) (slopes []float32, loss, count float64) {
	slopes = make([]float32, len(losses))
	b, each := len(m.Tokens), len(m.Tokens)/len(m.Rows)
	for i, row := range m.Rows {
		if row < 0 {
			continue
		}
		var seen []seenAnswer
		for j := range each {
			number := j
			if p.mismatched {
				number = 1
			}
			seen = append(seen, p.see(row, number, losses, b, i*each+j))
			if p.collect != nil {
				p.collect(row, m.Samples[i*each+j], number, seen[j].Policy)
			}
		}
		if p.collect == nil {
			loss += p.row(row, seen, slopes)
			count++
		}
	}
	return slopes, loss, count
}

// ReadsAll is that of engine.Objective: prompts are learned too, which LossMask does not have.
func (p *preferring) ReadsAll() bool { return p.allTokens }

// seenAnswer is an answer with where its tokens' losses are: token t of the sequence is predicted at
// (t−1)·step + sequence.
type seenAnswer struct {
	preference.Answer
	doc            *sft.Document
	step, sequence int
	nll, learned   float64 // Σ negative log-likelihoods of the tokens that SFTWeight learns, and how many these are
}

// see sums up an answer of a row.
func (p *preferring) see(row int64, answer int, losses []float32, step, sequence int) seenAnswer {
	d := &p.set.Rows[row].Answers[answer]
	a := seenAnswer{doc: d, step: step, sequence: sequence}
	a.Predicted, a.Tokens = float64(d.Learned()), float64(len(d.IDs)-d.From())
	for t := max(1, d.From()); t < len(d.IDs); t++ {
		a.Policy -= float64(losses[(t-1)*step+sequence])
	}
	for t := p.firstLearned(d); t < len(d.IDs); t++ {
		a.nll += float64(losses[(t-1)*step+sequence])
		a.learned++
	}
	if ref := p.reference[p.set]; ref != nil {
		a.Reference = ref[row][answer]
	}
	return a
}

// firstLearned is the first token whose negative log-likelihood SFTWeight learns.
func (p *preferring) firstLearned(d *sft.Document) int {
	if p.allTokens {
		return 1
	}
	return max(1, d.From())
}

// row adds a row to the tally and its slopes by the tokens' losses to slopes, and gives its loss.
func (p *preferring) row(row int64, seen []seenAnswer, slopes []float32) (loss float64) {
	o := &p.settings.Options
	if !p.loss.Paired() {
		good := p.set.Rows[row].Good
		loss, slope := p.loss.Single(o, seen[0].Answer, good, p.kl)
		seen[0].add(slopes, seen[0].doc.From(), -slope)
		which := worse
		if good {
			which = better
		}
		p.tally.answer(p.loss, o, &seen[0], which)
		return loss
	}
	loss, byChosen, byRejected := p.loss.Pair(o, seen[0].Answer, seen[1].Answer)
	seen[0].add(slopes, seen[0].doc.From(), -byChosen)
	seen[1].add(slopes, seen[1].doc.From(), -byRejected)
	p.tally.pair(p.loss, o, &seen[0], &seen[1])
	if p.nll > 0 {
		seen[0].add(slopes, p.firstLearned(seen[0].doc), p.nll)
		loss += p.nll * seen[0].nll
	}
	return loss
}

// add adds a slope to those of an answer's tokens from one on.
func (a *seenAnswer) add(slopes []float32, from int, slope float64) {
	for t := max(1, from); t < len(a.doc.IDs); t++ {
		slopes[(t-1)*a.step+a.sequence] += float32(slope)
	}
}
