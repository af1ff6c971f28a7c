package dataset

import (
	"io"

	"monotron/internal/exitcode"
)

// Order is the order in which samples are read.
type Order int

const (
	Single         Order = iota // --dataloader-type single: by number
	Cyclic                      // --dataloader-type cyclic: a new permutation each epoch
	FullValidation              // --full-validation: every sample once, one at a time
)

// SamplerConfig says who reads what. MicroBatch, Rank and DP are the micro-batch
// size and the rank in the data-parallel group.
type SamplerConfig struct {
	Order      Order
	Total      int64 // samples in the dataset
	MicroBatch int64
	Rank, DP   int64
	// Unsharded (--no-data-sharding) lets every rank draw from all samples;
	// otherwise each has a bucket of its own. Cyclic only.
	Unsharded bool
	// Drawn is what the order was drawn for, where that is another layout: the
	// one in which the run began. Cyclic only.
	Drawn Draw
}

// Draw is what the order of Cyclic depends on in addition to the epoch: Megatron permutes
// parts of the data as wide as the layout makes them. Zero is the sampler's own.
type Draw struct{ MicroBatch, DP int64 }

// Sampler gives the sample numbers of a rank's micro-batches. What it gives
// depends on the consumed samples alone, so a run resumes anywhere; it only
// remembers the last permutation. Not for use by several goroutines.
type Sampler struct {
	SamplerConfig
	own   bool // the order was drawn for this layout
	epoch int64
	perm  []int64
}

// NewSampler checks the configuration.
func NewSampler(c SamplerConfig) (*Sampler, error) {
	if c.MicroBatch < 1 || c.DP < 1 || c.Rank < 0 || c.Rank >= c.DP || c.Total < 0 {
		return nil, exitcode.Errorf(exitcode.Internal, "sampler: internal error: invalid settings: micro-batch size %d, rank %d of %d, %d samples; report this, and include the command line", c.MicroBatch, c.Rank, c.DP, c.Total)
	}
	own := Draw{c.MicroBatch, c.DP}
	if c.Drawn == (Draw{}) {
		c.Drawn = own
	}
	if d := c.Drawn; c.Order == Cyclic && (d.MicroBatch < 1 || d.DP < 1 || c.Total/d.DP < d.MicroBatch) {
		return nil, exitcode.Errorf(exitcode.BadData, "the dataset has %d samples, but a micro-batch of %d samples on each of %d ranks needs %d", c.Total, d.MicroBatch, d.DP, d.block())
	}
	return &Sampler{SamplerConfig: c, own: c.Drawn == own, epoch: -1}, nil
}

// Advance is what one micro-batch of all ranks adds to the consumed samples.
func (s *Sampler) Advance() int64 { return s.MicroBatch * s.DP }

// Batch adds the numbers of this rank's micro-batch to dst. consumed counts
// what all ranks have read before this micro-batch: the run's consumed samples
// plus Advance for each earlier micro-batch of the step. At the end of the data
// the error is io.EOF (never for Cyclic, which starts the next epoch).
func (s *Sampler) Batch(consumed int64, dst []int64) ([]int64, error) {
	if consumed < 0 {
		return dst, exitcode.Errorf(exitcode.Internal, "sampler: internal error: the number of consumed samples is %d; report this, and include the command line", consumed)
	}
	switch s.Order {
	case Cyclic:
		return s.cyclic(consumed, dst)
	case FullValidation:
		if at := consumed + s.Rank; at < s.Total {
			return append(dst, at), nil
		}
		return dst, io.EOF
	}
	if consumed+s.Advance() > s.Total {
		return dst, io.EOF
	}
	for i := range s.MicroBatch {
		dst = append(dst, consumed+s.Rank*s.MicroBatch+i)
	}
	return dst, nil
}

// block is how many samples one micro-batch of all ranks had where the order was drawn.
func (d Draw) block() int64 { return d.MicroBatch * d.DP }

// active is the part of the samples that makes complete blocks.
func (s *Sampler) active() int64 { return s.Total - s.Total%s.Drawn.block() }

func (s *Sampler) cyclic(consumed int64, dst []int64) ([]int64, error) {
	if at := consumed % s.active(); s.own && at%s.Advance() != 0 {
		return dst, exitcode.Errorf(exitcode.Usage, "--dataloader-type cyclic: the number of consumed samples, %d, is not a multiple of micro-batch size %d x data-parallel size %d; resume with the old --micro-batch-size and data-parallel size, or with --dataloader-type single", consumed, s.MicroBatch, s.DP)
	}
	for i := range s.MicroBatch {
		dst = append(dst, s.number(consumed+s.Rank*s.MicroBatch+i))
	}
	return dst, nil
}

// number is the sample at a position of the order: blocks follow one another, in a
// block the micro-batches of the ranks it was drawn for.
func (s *Sampler) number(index int64) int64 {
	s.permute(index / s.active())
	d := s.Drawn
	at := index % s.active()
	start, rank, i := at-at%d.block(), at%d.block()/d.MicroBatch, at%d.MicroBatch
	if s.Unsharded {
		return s.perm[start+rank+i*d.DP]
	}
	return rank*int64(len(s.perm)) + s.perm[start/d.DP+i]
}

// permute draws the order of an epoch: of one rank's bucket, or of all samples.
func (s *Sampler) permute(epoch int64) {
	if s.epoch == epoch {
		return
	}
	n := s.active() / s.Drawn.DP
	if s.Unsharded {
		n = s.Total / s.Drawn.MicroBatch * s.Drawn.MicroBatch
	}
	s.epoch, s.perm = epoch, randperm(n, uint32(epoch))
}

// Pass is what Megatron's sampler object yields when iterated once from
// consumed on, and the consumed samples it then counts for itself. It differs
// from repeated Batch in one case: unsharded, left-over samples may give some
// ranks a batch more, so that in Megatron the ranks drift apart in epoch.
func (s *Sampler) Pass(consumed int64) (batches [][]int64, after int64, err error) {
	if s.Order == Single && consumed >= s.Total {
		return nil, consumed, exitcode.Errorf(exitcode.BadData, "no samples are left: %d of %d have been consumed", consumed, s.Total)
	}
	end := s.Total
	if s.Order == Cyclic {
		end = (consumed/s.active() + 1) * s.active()
	}
	at := consumed
	for ; at < end; at += s.Advance() {
		batch, err := s.Batch(at, nil)
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, consumed, err
		}
		batches = append(batches, batch)
	}
	if extra := s.leftover(); extra != nil {
		batches, at = append(batches, extra), at+s.Advance()
	}
	return batches, at, nil
}

// leftover is the batch beyond the active samples that this rank gets, or nil.
func (s *Sampler) leftover() (batch []int64) {
	if s.Order != Cyclic || !s.Unsharded {
		return nil
	}
	for i := range s.MicroBatch {
		at := s.active() + s.Rank + i*s.DP
		if at >= int64(len(s.perm)) {
			return nil
		}
		batch = append(batch, s.perm[at])
	}
	return batch
}
