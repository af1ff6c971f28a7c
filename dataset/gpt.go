package dataset

import (
	"encoding/binary"
	"math"

	"monotron/fault"
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
// fixed length that run on over the ends of sequences.
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

	// DocumentIndex is every sequence number, epochs times, shuffled. Row i of
	// SampleIndex (place in DocumentIndex, token) is where sample i starts.
	// ShuffleIndex is the order in which samples are read.
	DocumentIndex, SampleIndex, ShuffleIndex Array

	Description pyDict
	Hash        string // of Description: names the cache files
}

// Len is the number of samples, at least *Num.
func (g *GPT) Len() int64 { return g.ShuffleIndex.Len() }

// DescriptionJSON is the text whose MD5 is Hash.
func (g *GPT) DescriptionJSON() string { return pyJSON(g.Description) }

// newGPT builds the arrays or reads them from the cache.
func newGPT(g GPT, tok tokenizer.Tokenizer, text string, rows any, c *cache) (*GPT, error) {
	g.describe(tok, text, rows)
	plan, err := g.plan()
	if err != nil {
		return nil, err
	}
	g.Epochs, g.Separate = plan.epochs, plan.separate
	if c.load(&g, plan) {
		return &g, nil
	}
	if err := g.build(plan); err != nil {
		return nil, err
	}
	return &g, c.store(&g)
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

func (g *GPT) plan() (p plan, err error) {
	longest := int64(0)
	for i := g.First; i < g.End; i++ {
		n := g.source.Size(i)
		p.tokens += n
		longest = max(longest, n)
	}
	if g.sequence < 2 || p.tokens < 2 {
		return p, fault.Errorf(fault.BadData, "%s: the %s split (sequences %d to %d) has %d tokens; samples of %d need at least 2 of each", g.label(), g.Split, g.First, g.End, p.tokens, g.sequence)
	}
	p.epochs = 1
	if g.Num != nil {
		need, ok := product(*g.Num, g.sequence)
		if !ok {
			return p, fault.Errorf(fault.Usage, "%d samples of %d tokens are more than can be counted", *g.Num, g.sequence)
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
		return fault.Errorf(fault.Internal, "%s: the last of %d epochs holds %d of %d samples", g.label(), p.epochs, last, perEpoch)
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
// the shuffle in the same two parts.
func (g *GPT) build(p plan) error {
	rng := newMersenne(g.seed)
	n := g.End - g.First
	if g.End > math.MaxInt32 {
		return fault.Errorf(fault.BadData, "%s: sequence numbers up to %d do not fit Megatron's 32-bit document index", g.label(), g.End)
	}
	g.DocumentIndex = newArray("<i4", n*p.epochs)
	for at := int64(0); at < n*p.epochs; at++ {
		g.DocumentIndex.set(at, g.First+at%n)
	}
	cut := 4 * n * p.epochs
	if p.separate {
		cut -= 4 * n
	}
	rng.shuffle(g.DocumentIndex.Data[:cut], 4)
	rng.shuffle(g.DocumentIndex.Data[cut:], 4)

	g.SampleIndex = newArray(g.sampleType(), p.samples+1, 2)
	if err := g.fillSamples(p); err != nil {
		return err
	}

	g.ShuffleIndex = newArray(shuffleType(p.samples), p.samples)
	for i := int64(0); i < p.samples; i++ {
		g.ShuffleIndex.set(i, i)
	}
	w := g.ShuffleIndex.width
	rng.shuffle(g.ShuffleIndex.Data[:p.sans*int64(w)], w)
	rng.shuffle(g.ShuffleIndex.Data[p.sans*int64(w):], w)
	return nil
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
	at, off, row := int64(0), int64(0), int64(0)
	emit := func() {
		g.SampleIndex.set(2*row, at)
		g.SampleIndex.set(2*row+1, off)
		row++
	}
	emit()
	for row <= p.samples {
		var ok bool
		if at, off, ok = g.step(at, off); !ok && row < p.samples {
			return fault.Errorf(fault.Internal, "%s: the tokens ended at sample %d of %d", g.label(), row, p.samples)
		}
		emit()
	}
	return nil
}

// step goes from the start of one sample to the start of the next; ok is false
// where the documents end first (then the place is their last token).
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
