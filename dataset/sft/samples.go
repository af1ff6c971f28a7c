package sft

import (
	"math/rand/v2"
	"sync"

	"monotron/dataset"
	"monotron/internal/exitcode"
	"monotron/tokenizer"
)

// Set is the samples of a file. It is a dataset.Dataset of one pass over them.
type Set struct {
	docs   []Document
	packs  [][]int32 // numbers of documents, by sample
	length int
	pad    int32
	packed bool
	Counts Counts
}

// New makes samples of a file.
func New(path string, tok tokenizer.Tokenizer, c Config) (*Set, error) {
	docs, counts, err := Load(path, tok, c)
	if err != nil {
		return nil, err
	}
	s := &Set{length: c.Length, packed: Packs(c.Packing), Counts: counts, pad: padOf(tok)}
	s.docs, s.packs = pack(docs, c)
	return s, nil
}

// padOf is the id that fills samples; its label never counts.
func padOf(tok tokenizer.Tokenizer) int32 {
	if pad, ok := tok.Pad(); ok {
		return int32(pad)
	}
	return int32(max(0, tok.EOD()))
}

// Packs reports whether samples hold several documents, which must not see each other.
func Packs(packing string) bool { return packing != "" && packing != PackNone }

// Len is the number of samples.
func (s *Set) Len() int64 { return int64(len(s.packs)) }

// Documents are those of sample k, in order.
func (s *Set) Documents(k int64) (docs []Document) {
	for _, n := range s.packs[k] {
		docs = append(docs, s.docs[n])
	}
	return docs
}

// Sample is the documents of sample k after one another.
func (s *Set) Sample(k int64) (dataset.Sample, error) {
	if k < 0 || k >= s.Len() {
		return dataset.Sample{}, exitcode.Errorf(exitcode.Internal, "internal error: sample %d was requested, but there are %d samples; report this, and include the command line", k, s.Len())
	}
	var docs []*Document
	for _, doc := range s.packs[k] {
		docs = append(docs, &s.docs[doc])
	}
	return laid(docs, s.length, s.packed, s.pad), nil
}

// laid is a sample of n tokens with documents after one another: positions restart at each, queries
// see their own document, and no document's first token is a label. packed: padding is a document
// of its own.
func laid(docs []*Document, n int, packed bool, pad int32) dataset.Sample {
	ints := make([]int32, 4*n)
	out := dataset.Sample{Tokens: ints[:n:n], Labels: ints[n : 2*n : 2*n], PositionIDs: ints[2*n : 3*n : 3*n], DocStart: ints[3*n:], LossMask: make([]float32, n)}
	at := 0
	for _, d := range docs {
		copy(out.Tokens[at:], d.IDs)
		copy(out.Labels[at:], d.IDs[min(1, len(d.IDs)):])
		for _, span := range d.Learn {
			for i := max(1, span[0]); i < span[1]; i++ {
				out.LossMask[at+i-1] = 1
			}
		}
		mark(&out, at, at+len(d.IDs))
		at += len(d.IDs)
	}
	for i := at; i < n; i++ {
		out.Tokens[i] = pad
	}
	if packed {
		mark(&out, at, n)
	} else {
		mark(&out, 0, n) // padding comes after all that is learned
		out.Filled = at
	}
	return out
}

// mark says where a document lies: tokens [from, to).
func mark(s *dataset.Sample, from, to int) {
	for i := from; i < to; i++ {
		s.PositionIDs[i], s.DocStart[i] = int32(i-from), int32(from)
	}
}

// epochs repeats a set without end, each epoch in an order of its own. What sample k is depends
// on k and the seed alone, so a run resumes anywhere and no layout changes what it reads.
type epochs struct {
	set     dataset.Dataset
	seed    uint64
	shuffle bool

	mu    sync.Mutex
	epoch int64 // of order; -1: none drawn yet
	order []int32
}

// Epochs is the training set of set: more samples than any run can ask for.
func Epochs(set dataset.Dataset, c Config) dataset.Dataset {
	return &epochs{set: set, seed: c.Seed, shuffle: c.Shuffle, epoch: -1}
}

// PreferencesOf are the rows of preference data under a dataset; nil: it has none.
func PreferencesOf(d dataset.Dataset) *Preferences {
	if e, is := d.(*epochs); is {
		d = e.set
	}
	p, _ := d.(*Preferences)
	return p
}

// endless is how many samples a training set has.
const endless = 1 << 60

func (e *epochs) Len() int64 { return endless }

func (e *epochs) Sample(k int64) (dataset.Sample, error) {
	n := e.set.Len()
	return e.set.Sample(e.number(k/n, k%n))
}

// number is the sample at a position of an epoch.
func (e *epochs) number(epoch, index int64) int64 {
	if !e.shuffle {
		return index
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.epoch != epoch {
		e.order, e.epoch = permutation(int(e.set.Len()), e.seed, uint64(epoch)), epoch
	}
	return int64(e.order[index])
}

// permutation is Fisher and Yates' shuffle by PCG of seed and epoch.
func permutation(n int, seed, epoch uint64) []int32 {
	source, order := rand.NewPCG(seed, epoch), make([]int32, n)
	for i := range order {
		order[i] = int32(i)
	}
	for i := n - 1; i > 0; i-- {
		j := source.Uint64() % uint64(i+1)
		order[i], order[j] = order[j], order[i]
	}
	return order
}
