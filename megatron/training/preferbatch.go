package training

import (
	"context"
	"math"

	"monotron/csrc/device"
	"monotron/dataset"
	"monotron/dataset/sft"
	"monotron/megatron/engine"
	"monotron/megatron/telemetry"
	"monotron/mpu/comm"
)

// begin finds out what a pass over a global batch needs to know of all its rows. All ranks call it
// together.
func (p *preferring) begin(_ context.Context, r *Run, f *Feed, batch []*engine.Micro) error {
	p.set = sft.PreferencesOf(f.set)
	if f.split != dataset.Train.String() { // an evaluation's tokens are those of its set, however it is cut
		p.nll = p.perToken(p.size(p.set.Rows))
		return nil
	}
	p.tally = tally{}
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
	if at := r.rank.Coordinates; at.TP == 0 && at.PP == 0 { // other ranks have the samples of one of these
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
	p.tally = tally{}
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
	if err := p.peekMismatched(r, batch); err != nil || r.rank.Coordinates.TP != 0 {
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
	return r.Engine.Peek(mixed, engine.Observer{})
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

// values are what the rows since begin or beginEvaluation tell, of all ranks.
func (p *preferring) values(r *Run) ([]telemetry.Value, error) {
	own := p.tally
	if r.rank.Coordinates.TP != 0 { // it has seen the same answers as the first of its group
		own = tally{}
	}
	var mine []float64
	for _, n := range own.numbers() {
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
	return all.values(p), nil
}
