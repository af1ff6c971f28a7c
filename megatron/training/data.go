package training

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"monotron/csrc/device"
	"monotron/dataset"
	"monotron/dataset/sft"
	"monotron/internal/argv"
	"monotron/internal/exitcode"
	"monotron/internal/store"
	"monotron/megatron/config"
	"monotron/megatron/engine"
	"monotron/tokenizer"
)

// Feed reads the micro-batches of one split. What it gives depends on the
// consumed samples alone.
type Feed struct {
	set     dataset.Dataset
	sampler *dataset.Sampler
	masked  bool // documents do not see each other
	rows    bool // an objective learns from rows
	split   string

	first int64 // number in the global batch of this rank's first sample

	unit  int  // of lengths that micro-batches are cut to; 0: they keep that of the samples
	alike bool // micro-batches of a global batch have one length

	all   bool // every sample once, one at a time
	wraps bool // the data begins again when it is used up
	note  func(format string, args ...any)

	loader *dataset.Loader // reads ahead, --num-workers micro-batches at once
}

// feeds are the three splits, and the first once more for --eval-train-iters; one without
// data is nil.
type feeds struct{ train, valid, test, again *Feed }

// openData builds the datasets for a run of trainIters iterations.
func openData(c *config.Run, tok tokenizer.Tokenizer, trainIters int) (sets [3]dataset.Dataset, err error) {
	if c.Tuning.Data != "" {
		return tuningData(c, tok)
	}
	sets[0], sets[1], sets[2], err = dataset.Build(c.Data, tok, sampleCounts(c, trainIters))
	if exitcode.CodeOf(err) == exitcode.NoInput {
		err = exitcode.Errorf(exitcode.NoInput, "%w%s", err, prefixHint(c))
	}
	return sets, err
}

// MissingInputs are an error for each input that c names and that is not there: the tokenizer's files, and the first of
// the data's prefixes, in the words of the run that would meet it.
func MissingInputs(c *config.Run) (list []error) {
	for _, path := range []string{c.Tokenizer.VocabFile, c.Tokenizer.MergeFile, c.Tokenizer.Model} {
		if path == "" || exists(path) {
			continue
		}
		if _, err := tokenizer.FromConfig(c.Tokenizer); err != nil {
			list = append(list, err)
		}
		break
	}
	for _, prefix := range c.Data.Prefixes() {
		if _, err := strconv.ParseFloat(prefix, 64); err == nil || store.IsURL(prefix) || exists(prefix+".idx") {
			continue
		}
		return append(list, exitcode.Errorf(exitcode.NoInput, "%s.idx does not exist%s", prefix, prefixHint(c)))
	}
	return list
}

// prefixHint says what a data path is, to whoever named one that is not there:
// mostly --output-prefix of preprocess_data, whose files have a longer name.
func prefixHint(c *config.Run) string {
	weighted := false
	for _, path := range c.Data.Prefixes() {
		if _, err := os.Stat(path + ".idx"); err == nil {
			continue
		}
		if _, err := strconv.ParseFloat(path, 64); err == nil {
			weighted = true
			continue
		}
		if pair := strings.TrimSuffix(path, ".idx"); pair != path && exists(path) {
			return "; give the prefix of the .bin and .idx files, " + pair
		}
		if len(strings.Fields(path)) > 1 {
			return "; a path that contains blanks was given: give weights and prefixes as separate arguments, without quotes around all of them, as in 0.3 A 0.7 B"
		}
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			name, _, _ := strings.Cut(filepath.Base(path), ".")
			return fmt.Sprintf("; %s is a file: convert it to tokens with monotron preprocess_data --input %s --output-prefix %s --tokenizer-type GPT2BPETokenizer --append-eod, then give --data-path %s", path, argv.Quoted(path), argv.Quoted(name), argv.Quoted(name+"_text_document"))
		}
		hint := "; a data path is the common prefix of two files, PATH.bin and PATH.idx"
		if found, err := filepath.Glob(path + "*.idx"); err == nil && len(found) > 0 {
			hint += "; the folder has " + strings.TrimSuffix(found[0], ".idx")
		}
		return hint
	}
	if weighted {
		return "; give weights and prefixes in pairs: 0.3 A 0.7 B"
	}
	return ""
}

// newFeeds reads sets for the dp-th data-parallel rank, in an order.
func newFeeds(c *config.Run, sets [3]dataset.Dataset, dp int, order sampleOrder, note func(format string, args ...any)) (f feeds, err error) {
	out := [3]**Feed{&f.train, &f.valid, &f.test}
	for i, set := range sets {
		if set == nil {
			continue
		}
		if set.Len() == 0 {
			if i > int(dataset.Train) {
				note("the %s data is shorter than one sample of %d tokens, so there is no %s loss", dataset.Split(i), c.SeqLength, dataset.Split(i))
			}
			continue
		}
		if *out[i], err = newFeed(c, set, dataset.Split(i), dp, order); err != nil {
			return f, err
		}
		(*out[i]).note = note
	}
	if f.train != nil && c.EvalTrainIters > 0 {
		if f.again, err = newFeed(c, sets[dataset.Train], dataset.Train, dp, order); err != nil {
			return f, err
		}
		f.again.note = func(string, ...any) {} // that the data is used up matters to the training alone
	}
	if d := &c.Data; sets[dataset.Valid] == nil && c.EvalIters > 0 && c.Tuning.Data == "" && !d.Mock && len(d.DataPath) == 0 && d.DataArgsPath == "" {
		note("there is no validation data, so evaluations are not possible; give --valid-data-path (or valid in --per-split-data-args-path), or --eval-iters 0")
	}
	if f.train == nil && !c.SkipTrain {
		return f, exitcode.Errorf(exitcode.BadData, "the training split has no sample of %d tokens; check --split and --data-path", c.SeqLength)
	}
	return f, nil
}

// sampleCounts is what each split is asked for; nil: one epoch. They are part of
// Megatron's cache hashes, so they are its own numbers.
func sampleCounts(c *config.Run, trainIters int) [3]*int64 {
	train := int64(c.TrainSamples)
	if train == 0 {
		train = times(int64(trainIters), int64(c.GlobalBatchSize))
	}
	evals := int64(1)
	if c.EvalInterval > 0 && !c.SkipTrain {
		evals = int64(trainIters/c.EvalInterval + 1)
	}
	if c.EvalAtStart && !c.SkipTrain {
		evals++
	}
	test := times(int64(c.EvalIters), int64(c.EvalGlobalBatchSize))
	valid := times(evals, test)
	sizes := [3]*int64{&train, &valid, &test}
	if c.FullValidation {
		sizes[dataset.Valid] = nil
	}
	return sizes
}

// times is a*b of numbers that are not negative, or the largest number, which dataset.Build
// refuses as the number of samples.
func times(a, b int64) int64 {
	if a != 0 && b > math.MaxInt64/a {
		return math.MaxInt64
	}
	return a * b
}

// NewFeed reads a split for the dp-th data-parallel rank.
func NewFeed(c *config.Run, set dataset.Dataset, split dataset.Split, dp int) (*Feed, error) {
	return newFeed(c, set, split, dp, ownOrder(c))
}

func newFeed(c *config.Run, set dataset.Dataset, split dataset.Split, dp int, order sampleOrder) (*Feed, error) {
	s := dataset.SamplerConfig{Total: set.Len(), MicroBatch: int64(c.EvalMicroBatchSize), Rank: int64(dp), DP: int64(max(1, c.Layout.DP)), Drawn: order.Valid}
	if split == dataset.Train {
		s.MicroBatch, s.Drawn = int64(c.MicroBatchSize), order.Train
	}
	if cyclic(c) {
		s.Order, s.Unsharded = dataset.Cyclic, c.NoDataSharding
	}
	if split == dataset.Valid && c.FullValidation {
		s.Order, s.MicroBatch = dataset.FullValidation, 1
	}
	sampler, err := dataset.NewSampler(s)
	if err != nil {
		return nil, err
	}
	f := &Feed{set: set, sampler: sampler, first: s.Rank * s.MicroBatch, split: split.String(), masked: c.Data.ResetAttentionMask || c.Data.InterDocumentMasking,
		rows: c.Tuning.ByRows()}
	f.all = s.Order == dataset.FullValidation
	f.wraps = s.Order == dataset.Single
	f.loader = dataset.NewLoader(set, f.numbers, sampler.Advance(), max(0, c.NumWorkers))
	return f, nil
}

// Batch reads `micros` micro-batches from the consumed samples on; those that
// follow are read meanwhile.
func (f *Feed) Batch(consumed int64, micros int) ([]*engine.Micro, error) {
	var batch []*engine.Micro
	var filled []int
	for m := range micros {
		at := f.wrapped(consumed + int64(m)*f.sampler.Advance())
		samples, _, err := f.loader.MicroBatch(at)
		if err == io.EOF {
			return nil, exitcode.Errorf(exitcode.BadData, "the %s data is exhausted: there are %d samples, and %d were consumed; train for fewer iterations or add data", f.split, f.set.Len(), at)
		}
		if err != nil {
			return nil, err
		}
		micro := f.micro(samples, int32(int64(m)*f.sampler.Advance()+f.first))
		if f.idle(at) {
			leaveOut(micro)
		}
		batch, filled = append(batch, micro), append(filled, longest(samples))
	}
	f.shorten(batch, filled)
	return batch, nil
}

// longest is the positions of samples before the padding that all of them end with; the length of
// samples that do not tell.
func longest(samples []dataset.Sample) (n int) {
	for _, s := range samples {
		if s.Filled == 0 {
			return len(s.Tokens)
		}
		n = max(n, s.Filled, longest(s.Also))
	}
	return n
}

// shorten cuts the padding at the end of micro-batches that have so many positions before it. No
// position sees one that is cut, so that losses and gradients stay what they are.
func (f *Feed) shorten(batch []*engine.Micro, filled []int) {
	for i, m := range batch {
		need := filled[i]
		if f.alike {
			need = slices.Max(filled)
		}
		if f.unit == 0 || up(need, f.unit) >= len(m.Tokens[0]) {
			continue
		}
		n := up(need, f.unit)
		for k := range m.Tokens {
			m.Tokens[k], m.Labels[k], m.LossMask[k], m.PositionIDs[k] = m.Tokens[k][:n], m.Labels[k][:n], m.LossMask[k][:n], m.PositionIDs[k][:n]
		}
	}
}

// up is the next multiple of unit from n on.
func up(n, unit int) int { return (n + unit - 1) / unit * unit }

// lengthUnit is what the lengths of a run's micro-batches are multiples of: few different ones, each of
// which all ranks can share; 0: they all have --seq-length. Experts take part in what padding they get,
// a graph has one shape, and on a GPU kernels are chosen for one.
func lengthUnit(c *config.Run, d *device.Device) int {
	const unit = 64
	if c.Tuning.Data == "" || sft.Packs(c.Tuning.Packing) || c.Model.Experts != nil || c.Model.MTP != nil || c.Graphs || !d.OnHost() || d.Counts() {
		return 0
	}
	shared := 2 * max(1, c.Layout.CP) * max(1, c.Layout.TP)
	return unit * shared / gcd(unit, shared)
}

func gcd(a, b int) int {
	for b > 0 {
		a, b = b, a%b
	}
	return a
}

// idle: in the last round of a full validation this rank has no sample. It takes
// the last one, and nothing of it counts.
func (f *Feed) idle(at int64) bool {
	return f.all && at < f.set.Len() && at+f.sampler.Rank >= f.set.Len()
}

// numbers are the samples of the micro-batch at a position.
func (f *Feed) numbers(at int64) ([]int64, error) {
	if f.idle(at) {
		return []int64{f.set.Len() - 1}, nil
	}
	return f.sampler.Batch(at, nil)
}

// wrapped begins again where all data is used: evaluations after a change of
// --eval-iters, training on a blend without weights, which holds each sample
// once. Megatron stops there.
func (f *Feed) wrapped(at int64) int64 {
	full := f.set.Len() / f.sampler.Advance() * f.sampler.Advance()
	if !f.wraps || full == 0 || at+f.sampler.Advance() <= f.set.Len() {
		return at
	}
	f.note("all %d samples of the %s data are used; the samples repeat from the first one", f.set.Len(), f.split)
	f.note = func(string, ...any) {}
	return at % full / f.sampler.Advance() * f.sampler.Advance()
}

// leaveOut has nothing of a micro-batch count.
func leaveOut(m *engine.Micro) {
	for i, row := range m.LossMask {
		m.LossMask[i] = make([]float32, len(row))
	}
	for i := range m.Rows {
		m.Rows[i] = -1
	}
}

// micro makes a micro-batch of samples; first is the number of the first one in
// the global batch.
func (f *Feed) micro(samples []dataset.Sample, first int32) *engine.Micro {
	m := &engine.Micro{}
	for i, s := range samples {
		n := int32(1 + len(s.Also))
		f.add(m, s, (first+int32(i))*n)
		for j, also := range s.Also {
			f.add(m, also, (first+int32(i))*n+1+int32(j))
		}
		if f.rows {
			m.Rows = append(m.Rows, s.Row)
		}
	}
	return m
}

// add puts a sequence at the end of a micro-batch.
func (f *Feed) add(m *engine.Micro, s dataset.Sample, number int32) {
	m.Tokens, m.Labels = append(m.Tokens, s.Tokens), append(m.Labels, s.Labels)
	m.LossMask, m.PositionIDs = append(m.LossMask, s.LossMask), append(m.PositionIDs, s.PositionIDs)
	if f.masked {
		m.DocStart = append(m.DocStart, s.DocStart)
	}
	m.Samples = append(m.Samples, number)
}
