package dataset

import (
	"monotron/internal/exitcode"
)

// Dataset is numbered samples in a fixed order.
type Dataset interface {
	Len() int64
	// Sample reads sample k, 0 <= k < Len. It is safe for several goroutines.
	Sample(k int64) (Sample, error)
}

// Sample is one row of a batch; every slice is S long and the caller's own.
type Sample struct {
	Tokens      []int32
	Labels      []int32
	LossMask    []float32 // 0 where the label is padding (and, on request, after EOD)
	PositionIDs []int32
	DocStart    []int32 // first key position that each query sees; 0 without a reset
	// CuSeqlens, with inter-document masking only, is S+1 long: 0, the end of
	// each document's tokens, then S to the end.
	CuSeqlens []int32

	Also []Sample // of preference data: the sequences that belong to this one, each of the same length
	Row  int64    // of preference data: number of the row

	Filled int // positions before the padding at the end, which nothing else sees; 0: not known
}

// masks says what happens at the ends of documents.
type masks struct {
	resetPositions, resetAttention, eodMask bool // found by EOD in the input
	interDocument                           bool // found by the ends of sequences
}

// Sample is a fresh computation each time: nothing of one sample stays for the
// next (in Megatron the loss mask of a padded first sample does).
func (g *GPT) Sample(k int64) (_ Sample, err error) {
	defer catching()()
	defer caught(g.label(), &err)
	if k < 0 || k >= g.Len() {
		return Sample{}, exitcode.Errorf(exitcode.Internal, "%s: internal error: sample %d was requested, but there are %d samples; report this, and include the command line", g.label(), k, g.Len())
	}
	// Sample k is row ShuffleIndex[k] of the sample index.
	row := g.ShuffleIndex.At(k)
	if row < 0 || row >= g.SampleIndex.Len()/2-1 {
		return Sample{}, g.damaged(k)
	}
	text, ends, err := g.read(row)
	if err != nil {
		return Sample{}, err
	}
	// seq+1 tokens give inputs and labels, each [seq]; padding does not count in the loss.
	s := g.cut(text)
	for i, label := range s.Labels {
		if s.LossMask[i] = 1; label == g.pad {
			s.LossMask[i] = 0
		}
	}
	// Positions and documents, by the ends of sequences or by the end-of-document id.
	if g.masks.interDocument {
		g.byEnds(&s, ends)
	} else {
		g.byEOD(&s)
	}
	for i := range s.Tokens { // the model never sees the padding id
		if s.Tokens[i] == g.pad {
			s.Tokens[i] = 0
		}
		if s.Labels[i] == g.pad {
			s.Labels[i] = 0
		}
	}
	return s, nil
}

// cut makes the arrays of a sample; text is S+extra long.
func (g *GPT) cut(text []int32) Sample {
	n := g.sequence
	ints := make([]int32, 4*n)
	s := Sample{Tokens: ints[:n:n], Labels: ints[n : 2*n : 2*n], PositionIDs: ints[2*n : 3*n : 3*n], DocStart: ints[3*n:], LossMask: make([]float32, n)}
	copy(s.Tokens, text)
	copy(s.Labels, text[1:])
	if g.extra == 0 {
		s.Labels[n-1] = g.pad
	}
	return s
}

// byEOD sets positions and masks from the EODs in the input.
func (g *GPT) byEOD(s *Sample) {
	start := int32(0)
	for i, token := range s.Tokens {
		at := int32(i)
		s.PositionIDs[i] = at
		if g.masks.resetPositions {
			s.PositionIDs[i] = at - start
		}
		if g.masks.resetAttention {
			s.DocStart[i] = start
		}
		if token != g.eod || g.eod < 0 {
			continue
		}
		if start = at + 1; g.masks.eodMask {
			s.LossMask[i] = 0
		}
	}
}

// byEnds sets positions and masks from where the sequences end in the sample.
func (g *GPT) byEnds(s *Sample, ends []int32) {
	n := int32(g.sequence)
	s.CuSeqlens = make([]int32, n+1)
	start, next := int32(0), 0
	for i := range n {
		for next < len(ends) && ends[next] <= i {
			start = ends[next]
			next++
		}
		s.PositionIDs[i], s.DocStart[i] = i-start, start
		if g.masks.eodMask && s.Tokens[i] == g.eod && g.eod >= 0 {
			s.LossMask[i] = 0
		}
	}
	at := 1
	for _, e := range ends {
		if e > s.CuSeqlens[at-1] && e < n {
			s.CuSeqlens[at] = e
			at++
		}
	}
	for ; at < len(s.CuSeqlens); at++ {
		s.CuSeqlens[at] = n
	}
}

// read gives the S+extra tokens of row j of SampleIndex, padded on the right,
// and where in them each sequence ends.
func (g *GPT) read(j int64) (text []int32, ends []int32, err error) {
	length := g.sequence + g.extra
	text = make([]int32, 0, length)
	// From token off of document `first` in the order to token end of document `last`.
	first, off := g.SampleIndex.At(2*j), g.SampleIndex.At(2*j+1)
	last, end := g.SampleIndex.At(2*j+2), g.SampleIndex.At(2*j+3)
	// The arrays come from a file: what they say is checked against what is there.
	if first < 0 || last < first || last >= g.DocumentIndex.Len() {
		return nil, nil, g.damaged(j)
	}
	// Each document's part, with its token ids checked.
	for at := first; at <= last; at++ {
		doc := g.DocumentIndex.At(at)
		if doc < g.First || doc >= g.End || int64(len(text)) > length {
			return nil, nil, g.damaged(j)
		}
		upto := g.source.Size(doc)
		if at == last {
			upto = end + g.extra
		}
		start := len(text)
		if text, err = g.source.Slice(doc, off, upto-off, text); err != nil {
			return nil, nil, err
		}
		if err := g.checkIDs(doc, off, text[start:]); err != nil {
			return nil, nil, err
		}
		ends = append(ends, int32(len(text)))
		off = 0
	}
	// Only the last sample of a validation set may be short; it is padded.
	if n := int64(len(text)); n > length || n < length && !(g.keepLast && g.Split == Valid && 2*j+4 == g.SampleIndex.Len()) {
		return nil, nil, g.damaged(j)
	}
	if int64(len(text)) < length && g.noPad != "" {
		return nil, nil, exitcode.Errorf(exitcode.BadData, "%s: the last sample of the %s split has only %d of %d tokens, and %s has no padding id to fill the sample", g.label(), g.Split, len(text), length, g.noPad)
	}
	for int64(len(text)) < length {
		text = append(text, g.pad)
	}
	return text, ends, nil
}

// damaged is the error of index arrays that cannot be of this data; the check at the start
// reads a part of large ones.
func (g *GPT) damaged(sample int64) error {
	return exitcode.Errorf(exitcode.BadData, "%s: the cached index of the %s split (%s) is damaged at sample %d; remove its files from the cache folder to have them rebuilt", g.label(), g.Split, g.Hash, sample)
}

// checkIDs refuses ids that the model has no embedding for.
func (g *GPT) checkIDs(doc, off int64, ids []int32) error {
	if g.vocab == 0 {
		return nil
	}
	for i, id := range ids {
		if int64(uint32(id)) >= g.vocab {
			return exitcode.Errorf(exitcode.BadData, "%s has the token id %d, but the tokenizer's ids are 0 to %d: the data was made with another tokenizer", g.source.Where(doc, off+int64(i)), id, g.vocab-1)
		}
	}
	return nil
}
