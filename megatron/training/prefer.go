package training

import (
	"fmt"
	"math"

	"monotron/csrc/device"
	"monotron/dataset"
	"monotron/dataset/sft"
	"monotron/megatron/config"
	"monotron/megatron/engine"
	"monotron/megatron/preference"
	"monotron/megatron/telemetry"
	"monotron/mpu/comm"
	"monotron/tokenizer"
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

// preferenceData opens the rows of --finetune-data and --finetune-eval-data.
func preferenceData(c *config.Run, tok tokenizer.Tokenizer, s sft.Config) (sets [3]dataset.Dataset, err error) {
	open := func(flag, path string) (*sft.Preferences, error) {
		set, err := sft.NewPreferences(path, tok, s)
		if err == nil && c.Data.Notice != nil {
			c.Data.Notice(fmt.Sprintf("%s: %s; the last token of the first answer is %q", path, set, tok.Decode(set.Rows[0].Last())))
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", flag, err)
		}
		return set, err
	}
	train, err := open("--finetune-data", c.Tuning.Data)
	if err != nil {
		return sets, err
	}
	sets[dataset.Train] = sft.Epochs(train, s)
	if text := unbalanced(train, &c.Tuning.Preference.Options); text != "" && c.Data.Notice != nil {
		c.Data.Notice(text)
	}
	if c.Tuning.EvalData == "" {
		return sets, nil
	}
	valid, err := open("--finetune-eval-data", c.Tuning.EvalData)
	if err != nil {
		return sets, err
	}
	sets[dataset.Valid] = valid
	return sets, nil
}

// unbalanced says which weights make up for different numbers of good and bad answers, where those
// given do not: the weight of all good ones is to be 1 to 4/3 times that of all bad ones
// (Ethayarajh et al., equation 8). "": they do.
func unbalanced(set *sft.Preferences, o *preference.Options) string {
	good, bad := float64(set.Good()), float64(len(set.Rows)-set.Good())
	if set.Paired() || good*bad*o.Good*o.Bad == 0 {
		return ""
	}
	if ratio := o.Good * good / (o.Bad * bad); good == bad || ratio >= 0.995 && ratio <= 4.0/3+0.005 {
		return ""
	}
	return fmt.Sprintf("%g good and %g bad answers: their weights do not make up for their numbers; --kto-desirable-weight %.2f to %.2f, or --kto-undesirable-weight %.2f to %.2f, does",
		good, bad, o.Bad*bad/good, o.Bad*bad/good*4/3, o.Good*good/bad*3/4, o.Good*good/bad)
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

// begin finds out what a pass over a global batch needs to know of all its rows. All ranks call it
// together.
func (p *preferring) begin(r *Run, f *Feed, batch []*engine.Micro) error {
	p.set = sft.PreferencesOf(f.set)
	if f.split != dataset.Train.String() { // an evaluation's tokens are those of its set, however it is cut
		p.nll = p.perToken(p.size(p.set.Rows))
		return nil
	}
	if p.loss.Mismatched() {
		kl, rows, err := p.mismatchedRatios(r, batch)
		if err == nil {
			err = p.setKL(r, kl, rows)
		}
		if err != nil {
			return err
		}
	}
	if p.settings.SFTWeight == 0 {
		return nil
	}
	var rows, tokens float64
	if at := r.rank.Place; at.TP == 0 && at.PP == 0 { // other ranks have the samples of one of these
		rows, tokens = p.size(p.rowsOf(batch))
	}
	sums, err := r.sum([]float64{rows, tokens})
	if err != nil {
		return err
	}
	p.nll = p.perToken(sums[0], sums[1])
	return nil
}

// beginEvaluation finds out what an evaluation over so many batches needs to know of all their rows.
func (p *preferring) beginEvaluation(r *Run, f *Feed, consumed int64, iters, micros int) error {
	if !p.loss.Mismatched() || r.device.Counts() {
		return nil
	}
	p.set = sft.PreferencesOf(f.set)
	var kl, rows float64
	for range iters {
		batch, err := f.Batch(consumed, micros)
		if err != nil {
			return err
		}
		x, n, err := p.mismatchedRatios(r, batch)
		if err != nil {
			return err
		}
		kl, rows = kl+x, rows+n
		consumed += int64(micros) * f.sampler.Advance()
	}
	return p.setKL(r, kl, rows)
}

// mismatchedRatios sums the log ratios of a batch's mismatched answers, on the one rank of a model
// that counts, and counts them.
func (p *preferring) mismatchedRatios(r *Run, batch []*engine.Micro) (sum, rows float64, err error) {
	p.collect = func(row int64, _ int32, answer int, logp float64) {
		sum, rows = sum+logp-p.reference[p.set][row][answer], rows+1
	}
	defer func() { p.collect = nil }()
	if err := p.peekMismatched(r, batch); err != nil || r.rank.Place.TP != 0 {
		return 0, 0, err
	}
	return sum, rows, nil
}

// setKL takes the mean log ratio of all ranks' mismatched answers.
func (p *preferring) setKL(r *Run, kl, rows float64) error {
	sums, err := r.sum([]float64{kl, rows})
	if err == nil {
		p.kl = math.Max(0, sums[0]/math.Max(1, sums[1]))
	}
	return err
}

// perToken is the weight of a token's negative log-likelihood in the sum of the losses of rows that
// have so many tokens to learn.
func (p *preferring) perToken(rows, tokens float64) float64 {
	return p.settings.SFTWeight * rows / math.Max(1, tokens)
}

// size counts rows, and the tokens of them that SFTWeight learns.
func (p *preferring) size(rows []sft.Preference) (n, tokens float64) {
	for i := range rows {
		d := &rows[i].Answers[0]
		tokens += float64(max(0, len(d.IDs)-p.firstLearned(d)))
	}
	return float64(len(rows)), tokens
}

// rowsOf are the rows of micro-batches that count.
func (p *preferring) rowsOf(batch []*engine.Micro) (rows []sft.Preference) {
	for _, m := range batch {
		for _, row := range m.Rows {
			if row >= 0 {
				rows = append(rows, p.set.Rows[row])
			}
		}
	}
	return rows
}

// peekMismatched runs the mismatched answers of a batch's rows forward.
func (p *preferring) peekMismatched(r *Run, batch []*engine.Micro) error {
	var mixed []*engine.Micro
	for _, m := range batch {
		one := &engine.Micro{Rows: m.Rows, Samples: m.Samples}
		for _, row := range m.Rows {
			s := p.set.Mismatched(max(0, row))
			one.Tokens, one.Labels = append(one.Tokens, s.Tokens), append(one.Labels, s.Labels)
			one.LossMask, one.PositionIDs = append(one.LossMask, s.LossMask), append(one.PositionIDs, s.PositionIDs)
		}
		mixed = append(mixed, one)
	}
	p.mismatched = true
	defer func() { p.mismatched = false }()
	return r.Engine.Peek(mixed, engine.Look{})
}

// sum adds up numbers over all ranks.
func (r *Run) sum(numbers []float64) ([]float64, error) {
	s := r.device.Arena.Scope(device.Workspace)
	defer s.Release()
	all := s.Alloc(device.F64, int64(len(numbers)))
	device.WriteSlice(r.device, all, numbers)
	if err := r.rank.World().AllReduce(all, comm.Sum).Wait(); err != nil {
		return nil, err
	}
	if r.device.Counts() {
		return numbers, nil
	}
	return device.ReadSlice[float64](r.device, all), r.device.Sync()
}

// values are what the rows of a pass tell, of all ranks; the next tally begins.
func (p *preferring) values(r *Run) ([]telemetry.Value, error) {
	if r.rank.Place.TP != 0 { // it has seen the same answers as the first of its group
		p.tally = tally{}
	}
	var mine []float64
	for _, n := range p.tally.numbers() {
		mine = append(mine, *n)
	}
	sums, err := r.sum(mine)
	if err != nil {
		return nil, err
	}
	var all tally
	for i, n := range all.numbers() {
		*n = sums[i]
	}
	p.tally = tally{}
	return all.values(p), nil
}
