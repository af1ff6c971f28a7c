package dataset

import (
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"

	"monotron/internal/exitcode"
	"monotron/tokenizer"
)

// shape is what all GPTDatasets of a run share.
type shape struct {
	sequence int64 // tokens of a sample, S
	extra    int64 // 1: labels come from one token more, 0: from rolling
	seed     uint32
	keepLast bool // the validation split keeps its partial last sample
	masks    masks
	vocab    int64 // ids from here on are refused; 0: none
	eod      int32
	pad      int32
	noPad    string // name of a tokenizer that cannot pad
}

// GPT is Megatron's GPTDataset: one split of one source, cut into samples of a
// fixed length. A sample that reaches the end of a sequence continues in the next one.
type GPT struct {
	shape
	source Source
	Name   string // GPTDataset or MockGPTDataset
	Prefix string // "" for mock data
	Split  Split
	// Num is the number of samples asked for, nil: one epoch.
	Num *int64
	// First and End are the range of sequences.
	First, End int64
	// Epochs is how often the sequences are gone through; Separate says that
	// the last time is shuffled on its own.
	Epochs   int64
	Separate bool
	plan     plan

	// DocumentIndex is every sequence number, epochs times, shuffled. Row i of
	// SampleIndex (index in DocumentIndex, token) is where sample i starts.
	// ShuffleIndex is the order in which samples are read.
	DocumentIndex, SampleIndex, ShuffleIndex Array

	Description pyDict
	Hash        string // of Description: names the cache files
}

// Len is the number of samples, at least *Num.
func (g *GPT) Len() int64 { return g.plan.samples }

// DescriptionJSON is the text whose MD5 is Hash.
func (g *GPT) DescriptionJSON() string { return pyJSON(g.Description) }

// newGPT is a dataset without its arrays, which make or a blend adds.
func newGPT(g GPT, tok tokenizer.Tokenizer, text string, rows any) (*GPT, error) {
	g.describe(tok, text, rows)
	return &g, Guard(g.label(), func() (err error) {
		g.plan, err = g.planned()
		g.Epochs, g.Separate = g.plan.epochs, g.plan.separate
		return err
	})
}

// make builds the arrays or reads them from the cache.
func (g *GPT) make(c *cache) error {
	return Guard(g.label(), func() error {
		return c.make(c.leasePath(g), func(say func(string)) bool { return c.load(g, g.plan, say) }, func() (bool, error) {
			if err := g.fill(c); err != nil {
				return false, err
			}
			return false, c.store(g)
		})
	})
}

// fill builds the arrays, where there is memory for them.
func (g *GPT) fill(c *cache) error {
	bytes, ok := g.plan.arrayBytes(g.End-g.First, width(g.sampleType()), width(shuffleType(g.plan.samples)))
	if err := c.fits(fmt.Sprintf("the %s split of %s", g.Split, g.label()), g.plan.samples, bytes, ok); err != nil {
		return err
	}
	return Guard(g.label(), func() error { return g.build(g.plan) })
}

// plan is the sizes of the three arrays, from the token count alone.
type plan struct {
	tokens   int64 // of one epoch
	epochs   int64
	separate bool
	samples  int64 // rows of SampleIndex less one
	sans     int64 // samples of all epochs but the last
	partial  bool  // the last sample may be short
}

func (g *GPT) planned() (p plan, err error) {
	if g.End > math.MaxInt32 { // the document index is Megatron's
		return p, exitcode.Errorf(exitcode.BadData, "%s: the %s split has sequences up to number %d, but the largest number that an index can store is %d; divide the data into several prefixes and give them as a blend", g.label(), g.Split, g.End, math.MaxInt32)
	}
	for i := g.First; i < g.End; i++ {
		p.tokens += g.source.Size(i)
	}
	if p.tokens == 0 {
		return p, exitcode.Errorf(exitcode.BadData, "%s: the %s split (sequences %d to %d) has no tokens", g.label(), g.Split, g.First, g.End)
	}
	p.epochs = 1
	if g.Num != nil {
		need, ok := product(*g.Num, g.sequence)
		if !ok {
			return p, exitcode.Errorf(exitcode.Usage, "the number of tokens in %d samples of %d tokens does not fit into 64 bits", *g.Num, g.sequence)
		}
		p.epochs = max(1, (need+g.extra+p.tokens-1)/p.tokens)
	}
	p.partial = g.Split == Valid && g.keepLast
	p.samples = (p.epochs*p.tokens - g.extra) / g.sequence
	if p.partial { // Megatron divides in float32 here
		p.samples = int64(math.Ceil(float64(float32(p.epochs*p.tokens-g.extra) / float32(g.sequence))))
	}
	p.sans = p.samples
	return p, g.separateLast(&p)
}

// separateLast decides whether the last epoch is shuffled on its own: when less
// than 80% of it is needed, so that the samples of the others come first.
func (g *GPT) separateLast(p *plan) error {
	if p.epochs == 1 {
		return nil
	}
	sans := ((p.epochs-1)*p.tokens - g.extra) / g.sequence
	last, perEpoch := *g.Num-sans, (p.tokens-g.extra)/g.sequence
	if last < 0 || last > perEpoch+1 {
		return exitcode.Errorf(exitcode.Internal, "%s: internal error: the plan of %d epochs puts %d samples into the last epoch, but an epoch has only %d; report this, and include the command line", g.label(), p.epochs, last, perEpoch)
	}
	if p.separate = last < int64(0.80*float64(perEpoch)); p.separate {
		p.sans = sans
	}
	return nil
}

func product(a, b int64) (int64, bool) {
	if a != 0 && (b > math.MaxInt64/a || a*b > math.MaxInt64/4) {
		return 0, false
	}
	return a * b, true
}

// build fills the arrays. The order of the draws from one generator is part of
// the format: documents (all epochs but a separate last, then that one), then
// the shuffle in the same two parts. The sample index draws nothing, so it is
// made during the shuffle.
func (g *GPT) build(p plan) error {
	rng := newMersenne(g.seed)
	// Documents of every epoch in order, then shuffled; the last epoch apart where it is not needed in full.
	n := g.End - g.First
	g.DocumentIndex = newArray("<i4", n*p.epochs)
	docs := items[uint32](g.DocumentIndex)
	number(docs[:n], uint32(g.First))
	for at := n; at < int64(len(docs)); at += n {
		copy(docs[at:], docs[:n])
	}
	cut := n * p.epochs
	if p.separate {
		cut -= n
	}
	shuffle(rng, docs[:cut])
	shuffle(rng, docs[cut:])

	// The sample index reads the documents' order and draws nothing: it runs during the shuffle.
	failed := make(chan error, 1)
	g.SampleIndex = newArray(g.sampleType(), p.samples+1, 2)
	go func() { failed <- Guard(g.label(), func() error { return g.fillSamples(p) }) }()
	g.ShuffleIndex = newArray(shuffleType(p.samples), p.samples)
	if g.ShuffleIndex.width == 4 {
		shuffleTwo(rng, items[uint32](g.ShuffleIndex), p.sans)
	} else {
		shuffleTwo(rng, items[int64](g.ShuffleIndex), p.sans)
	}
	return <-failed
}

// shuffleTwo numbers the samples and shuffles the first ones and the others.
func shuffleTwo[T uint32 | int64](rng *mersenne, a []T, first int64) {
	number(a, 0)
	shuffle(rng, a[:first])
	shuffle(rng, a[first:])
}

// number fills a with first, first+1, ...
func number[T uint32 | int64](a []T, first T) {
	for i := range a {
		a[i] = first + T(i)
	}
}

func (g *GPT) sampleType() string {
	if (g.End-g.First)*g.Epochs > math.MaxInt32 || g.source.Longest() > math.MaxInt32 {
		return "<i8"
	}
	return "<i4"
}

func shuffleType(samples int64) string {
	if samples >= math.MaxUint32-1 {
		return "<i8"
	}
	return "<u4"
}

// fillSamples walks the documents once and notes where each sample starts.
// Neighbours share g.extra tokens.
func (g *GPT) fillSamples(p plan) error {
	var rows int64
	if g.SampleIndex.width == 4 {
		rows = fillRows(items[int32](g.SampleIndex), items[uint32](g.DocumentIndex), g.lengths(), g.sequence, g.extra)
	} else {
		rows = fillRows(items[int64](g.SampleIndex), items[uint32](g.DocumentIndex), g.lengths(), g.sequence, g.extra)
	}
	if rows < p.samples+1 {
		return exitcode.Errorf(exitcode.Internal, "%s: internal error: the planned epochs have tokens for %d samples, but %d are needed; report this, and include the command line", g.label(), rows-1, p.samples)
	}
	return nil
}

// fillRows fills rows with pairs (index in docs, token) and returns how many there
// are. A sample starts extra tokens before the end of the one before it, and
// the document that counts is the one that holds the last of these: next is the
// distance from the start of the current document to that token. Where the
// documents end inside the last row, it points to their last tokens.
func fillRows[T int32 | int64](rows []T, docs, lengths []uint32, sequence, extra int64) int64 {
	rows[0], rows[1] = 0, 0
	row, next := 2, int(sequence+extra-1)
	step, back := int(sequence), int(1-extra)
	var sizes [256]uint32 // of the documents from at on: read ahead, so that the loads overlap
	at := 0
	for at < len(docs) && row+4*len(sizes) <= len(rows) {
		now := docs[at:min(at+len(sizes), len(docs))]
		for k, doc := range now {
			sizes[k] = lengths[doc]
		}
		for k := 0; k < len(now) && row+4 <= len(rows); k++ {
			size := int(sizes[k])
			// How many samples start in a document cannot be foreseen, so two are
			// written without asking, and kept or not without a branch.
			r := rows[row : row+4]
			one, two := int(bit(next < size)), int(bit(next+step < size))
			r[0], r[1], r[2], r[3] = T(at), T(next+back), T(at), T(next+step+back)
			row += 2 * (one + two)
			next += step*(one+two) - size
			for ; next < 0 && row < len(rows); next += step {
				rows[row], rows[row+1] = T(at), T(next+size+back)
				row += 2
			}
			at++
		}
	}
	for ; at < len(docs) && row < len(rows); at++ {
		size := int(lengths[docs[at]])
		for ; next < size && row < len(rows); next += step {
			rows[row], rows[row+1] = T(at), T(next+back)
			row += 2
		}
		next -= size
	}
	if row == len(rows)-2 {
		last := len(docs) - 1
		rows[row] = T(last)
		rows[row+1] = T(int64(lengths[docs[last]]) - extra)
		row += 2
	}
	return int64(row / 2)
}

// lengths is the source's lengths, by sequence.
func (g *GPT) lengths() []uint32 {
	if x, ok := g.source.(*Indexed); ok { // in the file they may lie at any byte; the processors we run on do not mind
		file := unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(x.sizes))), x.n)
		if visits := g.DocumentIndex.Len(); visits < x.n {
			return file
		}
		onLarge := items[uint32](newArray("<u4", x.n)) // pages: they are visited at random
		copy(onLarge, file)
		return onLarge
	}
	out := make([]uint32, g.source.Len())
	for i := range out {
		out[i] = uint32(g.source.Size(int64(i)))
	}
	return out
}

// step goes from the start of one sample to the start of the next; ok is false
// where the documents end first (then the result is their last token).
func (g *GPT) step(at, off int64) (nextAt, nextOff int64, ok bool) {
	need := g.sequence + g.extra
	docs := g.DocumentIndex.Data
	for {
		size := g.source.Size(int64(binary.LittleEndian.Uint32(docs[4*at:])))
		length := size - off
		if need -= length; need <= 0 {
			return at, off + need + length - g.extra, true
		}
		if 4*(at+1) == int64(len(docs)) {
			return at, size - g.extra, false
		}
		at, off = at+1, 0
	}
}

// label names the dataset in messages.
func (g *GPT) label() string {
	if g.Prefix == "" {
		return "mock data"
	}
	return g.Prefix
}

// describe makes the JSON that names the cache files: key for key Megatron's.
func (g *GPT) describe(tok tokenizer.Tokenizer, text string, rows any) {
	// Entries and their order are Megatron's: the hash of this text names the files.
	d := pyDict{{"class", g.Name}, {"dataset_path", nil}, {"num_samples", nil}}
	if g.Prefix != "" {
		d[1].value = g.Prefix
	}
	if g.Num != nil {
		d[2].value = *g.Num
	}
	d = append(d,
		pyItem{"index_split", g.Split.String()},
		pyItem{"random_seed", int64(g.seed)},
		pyItem{"sequence_length", g.sequence},
		pyItem{"split", nil},
		pyItem{"split_matrix", rows})
	if rows != nil {
		d[6].value = text
	}
	// The tokenizer is a part of it.
	from := tok.Description()
	t := pyDict{{"class", "megatron.core.tokenizers.text.text_tokenizer.MegatronTokenizerText"}, {"tokenizer_path", nil}}
	if from.Path != "" {
		t[1].value = from.Path
	}
	for _, o := range from.Options {
		t = append(t, pyItem{o.Key, o.Value})
	}
	g.Description = append(d, pyItem{"tokenizer", t})
	g.Hash = md5Hex(g.DescriptionJSON())
}
