package dataset

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"monotron/internal/exitcode"
	"monotron/internal/store"
	"monotron/tokenizer"
)

// Config is what the data flags of pretrain_gpt say.
type Config struct {
	DataPath             []string // --data-path: prefixes, or weight prefix weight prefix ...
	TrainDataPath        []string
	ValidDataPath        []string
	TestDataPath         []string
	DataArgsPath         string    // a file that holds the words of --data-path
	PerSplitDataArgsPath string    // a JSON file with train, valid, test
	Groups               [3]Groups // --train-, --valid- and --test-weighted-split-paths
	Split                string    // "" is Megatron's 969, 30, 1 where it applies
	CachePath            string    // --data-cache-path
	ObjectPath           string    // --object-storage-cache-path: where files of s3:// prefixes are; "": in the user's cache
	Mock                 bool      // --mock-data
	SequenceLength       int
	Seed                 uint32
	ResetPositionIDs     bool
	ResetAttentionMask   bool
	EODMaskLoss          bool
	InterDocumentMasking bool    // --dataloader-inter-document-masking
	NoMmapBinFiles       bool    // --no-mmap-bin-files
	Surplus              float64 // --mid-level-dataset-surplus: share of spare samples per blended dataset
	AllowAmbiguousPad    bool    // --allow-ambiguous-pad-tokens
	// Dir is what relative paths start from, "" the working directory. Cache
	// names hold the paths as given, without it.
	Dir    string
	Notice func(text string) `json:"-"` // gets remarks for the user; may be nil
	// Left says how many bytes of memory the index arrays may take, and whose they are;
	// nil: as many as they need.
	Left func() (bytes int64, of string) `json:"-"`
	// Waiting is called some times a second while another process builds the arrays.
	Waiting               func() `json:"-"`
	NoExtraToken          bool   // no command line flag: labels are rolled
	KeepPartialValidation bool   // no command line flag: the last sample is padded
	NoCache               bool   // index arrays stay in memory
	AnyTokenID            bool   // no check against the vocabulary: only to reproduce arrays
}

// Check reports every problem of the flags together.
func (c Config) Check() error {
	var problems []error
	add := func(format string, args ...any) {
		problems = append(problems, exitcode.Errorf(exitcode.Usage, format, args...))
	}
	// Exactly one source of data.
	perSplit := len(c.TrainDataPath)+len(c.ValidDataPath)+len(c.TestDataPath) > 0 || c.PerSplitDataArgsPath != ""
	sources := 0
	for _, given := range []bool{c.Mock, len(c.DataPath) > 0, c.DataArgsPath != "", perSplit, c.grouped()} {
		if given {
			sources++
		}
	}
	switch {
	case sources == 0:
		add("no data: give --data-path, --train-data-path, --data-args-path, --per-split-data-args-path or --mock-data")
	case sources > 1:
		add("data is given more than once; use only one of --data-path, --data-args-path, --train/valid/test-data-path (or --per-split-data-args-path), --train/valid/test-weighted-split-paths and --mock-data")
	case (perSplit || c.grouped()) && c.Split != "":
		add("--split %q cannot be combined with data that is given per split; leave --split out", c.Split)
	case c.DataArgsPath != "" && c.Split == "":
		add("--data-args-path needs --split")
	}
	if perSplit && c.PerSplitDataArgsPath != "" && len(c.TrainDataPath)+len(c.ValidDataPath)+len(c.TestDataPath) > 0 {
		add("--per-split-data-args-path cannot be combined with --train/valid/test-data-path; give one")
	}
	// The numbers of the samples.
	if c.Split != "" {
		if _, err := parseSplit(c.Split); err != nil {
			problems = append(problems, err)
		}
	}
	if c.SequenceLength < 1 || c.SequenceLength > math.MaxInt32-1 {
		add("--seq-length must be from 1 to 2147483646, not %d", c.SequenceLength)
	}
	if !(c.Surplus >= 0 && c.Surplus < 1000) {
		add("--mid-level-dataset-surplus must be at least 0, not %v", c.Surplus)
	}
	return errors.Join(problems...)
}

// maker is the state of one Build.
type maker struct {
	Config
	shape   shape
	tok     tokenizer.Tokenizer
	num     [3]*int64
	cache   cache
	sources map[string]*Indexed
	tokHash func() string
}

// Build makes the datasets of the three splits; one that gets no data is nil.
// num is the number of samples wanted of each (train, valid, test), nil for one
// epoch. Files stay mapped for the life of the process.
func Build(cfg Config, tok tokenizer.Tokenizer, num [3]*int64) (train, valid, test Dataset, err error) {
	if err := cfg.Check(); err != nil {
		return nil, nil, nil, err
	}
	if cfg.ObjectPath == "" {
		cfg.ObjectPath, _ = store.CacheFolder("data") // where there is none, s3:// prefixes say so
	}
	for s, n := range num {
		if n != nil && *n < 0 {
			return nil, nil, nil, exitcode.Errorf(exitcode.Usage, "%d samples are requested for the %s split; the number must be 0 or more", *n, Split(s))
		}
	}
	m := &maker{Config: cfg, tok: tok, num: num, cache: cache{inDir(cfg.Dir, cfg.CachePath), cfg.Dir, cfg.ObjectPath, cfg.NoCache, cfg.Notice, cfg.Left, cfg.Waiting}, sources: map[string]*Indexed{},
		tokHash: sync.OnceValue(func() string { return TokenizerHash(tok) })}
	if m.shape, err = cfg.shape(tok); err != nil {
		return nil, nil, nil, err
	}
	sets, err := m.build()
	if err != nil {
		return nil, nil, nil, err
	}
	return sets[Train], sets[Valid], sets[Test], nil
}

func (c Config) shape(tok tokenizer.Tokenizer) (shape, error) {
	s := shape{
		sequence: int64(c.SequenceLength), extra: 1, seed: c.Seed, keepLast: c.KeepPartialValidation,
		masks: masks{c.ResetPositionIDs, c.ResetAttentionMask, c.EODMaskLoss, c.InterDocumentMasking},
		vocab: int64(tok.VocabSize()), eod: int32(tok.EOD()),
	}
	if c.NoExtraToken {
		s.extra = 0
	}
	if c.AnyTokenID {
		s.vocab = 0
	}
	pad, ok := tok.Pad()
	if s.pad = int32(pad); !ok {
		s.pad, s.noPad = -1, tok.Name()
	}
	if pad == tok.EOD() && !c.AllowAmbiguousPad {
		s.pad = -1
	}
	if s.eod < 0 && (c.ResetPositionIDs || c.ResetAttentionMask || c.EODMaskLoss) {
		return s, exitcode.Errorf(exitcode.Usage, "--reset-position-ids, --reset-attention-mask and --eod-mask-loss need an end-of-document token, but %s has none; leave these flags out or use another tokenizer", tok.Name())
	}
	return s, nil
}

func (m *maker) build() (sets [3]Dataset, err error) {
	// Sources that name their sets themselves.
	switch {
	case m.Mock:
		return m.mock()
	case len(m.DataPath) > 0:
		return m.split("--data-path", m.DataPath)
	case m.DataArgsPath != "":
		text, err := readArgs("--data-args-path", inDir(m.Dir, m.DataArgsPath))
		if err != nil {
			return sets, err
		}
		words := strings.Fields(string(text))
		if len(words) == 0 {
			return sets, exitcode.Errorf(exitcode.BadData, "--data-args-path %s is empty; write the arguments of --data-path to it", m.DataArgsPath)
		}
		return m.split("--data-args-path "+m.DataArgsPath, words)
	case m.grouped():
		for s, g := range m.Groups {
			if !g.given() {
				continue
			}
			if sets[s], err = m.group(Split(s)); err != nil {
				return sets, err
			}
		}
		return sets, nil
	}
	// A list for each split.
	words, err := m.perSplitWords()
	if err != nil {
		return sets, err
	}
	for s, list := range words {
		if len(list) == 0 {
			continue
		}
		if sets[s], err = m.ownSet(Split(s), list); err != nil {
			return sets, err
		}
	}
	return sets, nil
}

// mock makes the sets of --mock-data. As in Megatron each has a third of it, whatever --split says; one whose part
// by --split is zero is left out.
func (m *maker) mock() (sets [3]Dataset, err error) {
	const thirds = "1,1,1"
	rows, err := parseSplit(thirds)
	if err != nil {
		return sets, err
	}
	given := rows
	if m.Split != "" {
		if given, err = parseSplit(m.Split); err != nil {
			return sets, err
		}
		m.cache.say(fmt.Sprintf("--split %q: with --mock-data each set has a third of the data, as in Megatron-LM; a set whose size is zero is left out", m.Split))
	}
	if m.shape.eod < 0 {
		return sets, exitcode.Errorf(exitcode.Usage, "--mock-data needs an end-of-document token, but %s has none; use another tokenizer", m.tok.Name())
	}
	source := newMock(m.tok.VocabSize(), m.shape.eod)
	for s, row := range rows {
		if given[s] == nil {
			continue
		}
		g := GPT{shape: m.shape, source: source, Name: "MockGPTDataset", Split: Split(s), Num: m.num[s]}
		g.First, g.End = sequences(row, source.Len())
		made, err := newGPT(g, m.tok, thirds, pySplit(rows))
		if err == nil {
			err = made.make(&m.cache)
		}
		if err != nil {
			return sets, err
		}
		sets[s] = made
	}
	return sets, nil
}

// split makes the three datasets of one list of prefixes by --split.
func (m *maker) split(flag string, words []string) (sets [3]Dataset, err error) {
	mix, err := parseMixture(flag, words)
	if err != nil {
		return sets, err
	}
	// The prefixes, and the range of each split as fractions.
	text := m.Split
	if text == "" {
		text = defaultSplit
	}
	rows, err := parseSplit(text)
	if err != nil {
		return sets, err
	}
	// A set for each split that is not empty.
	for s, row := range rows {
		if row == nil {
			if m.num[s] != nil && *m.num[s] > 0 {
				m.cache.say(fmt.Sprintf("--split %q leaves the %s split empty, but the run needs %d samples of that split", text, Split(s), *m.num[s]))
			}
			continue
		}
		one := func(i int, num *int64) (*GPT, error) {
			return m.gpt(mix.prefixes[i], Split(s), row, num, text, pySplit(rows))
		}
		if sets[s], err = m.blend(mix, Split(s), len(mix.prefixes) == 1 && mix.weights == nil, one); err != nil {
			return sets, err
		}
	}
	return sets, nil
}

// ownSet makes the dataset of a split that has prefixes of its own.
func (m *maker) ownSet(s Split, words []string) (Dataset, error) {
	mix, err := parseMixture("--"+s.String()+"-data-path", words)
	if err != nil {
		return nil, err
	}
	one := func(i int, num *int64) (*GPT, error) {
		return m.gpt(mix.prefixes[i], s, &[2]float64{0, 1}, num, "", nil)
	}
	return m.blend(mix, s, len(mix.prefixes) == 1, one)
}

// blend makes a plain dataset of one prefix, or a blend of several.
func (m *maker) blend(mix mixture, s Split, plain bool, one func(int, *int64) (*GPT, error)) (Dataset, error) {
	// One prefix without a weight is not a blend.
	if plain {
		g, err := one(0, m.num[s])
		if g == nil || err != nil {
			return nil, err
		}
		return g, g.make(&m.cache)
	}
	if mix.weights == nil {
		return m.unweighted(mix, s, one)
	}
	if m.num[s] == nil {
		return nil, exitcode.Errorf(exitcode.Usage, "the %s split is a blend with weights, so its number of samples must be given; to use all data once, leave out the weights", s)
	}
	// Each member gets its share of the samples, rounded up, and a surplus, as it may be drawn more often
	// than its weight says.
	size, members := int64(0), make([]*GPT, len(mix.prefixes))
	weights := normalize(mix.weights)
	for i := range mix.prefixes {
		target := math.Ceil(float64(*m.num[s]) * weights[i])
		build := int64(math.Ceil(target * (1 + m.Surplus)))
		size += int64(target)
		g, err := one(i, &build)
		if err != nil {
			return nil, err
		}
		if members[i] = g; g == nil {
			return nil, nil
		}
	}
	return newBlended(members, weights, &size, s, &m.cache)
}

// unweighted is one epoch of every member, weighted by its length.
func (m *maker) unweighted(mix mixture, s Split, one func(int, *int64) (*GPT, error)) (Dataset, error) {
	sum, members, weights := int64(0), make([]*GPT, len(mix.prefixes)), make([]float64, len(mix.prefixes))
	for i, prefix := range mix.prefixes {
		g, err := one(i, nil)
		if err != nil {
			return nil, err
		}
		if g == nil { // weights would not help
			n := m.sources[prefix].Len()
			return nil, exitcode.Errorf(exitcode.BadData, "%s: the dataset has %d sequences, and the %s split gets none of them; leave the dataset out of the blend%s", prefix, n, s, smallSplit(n))
		}
		if g.Len() == 0 {
			return nil, exitcode.Errorf(exitcode.BadData, "%s has less than one sample of %d tokens in the %s split; leave the dataset out of the blend, or give every prefix a weight, so that data may be repeated", prefix, m.SequenceLength, s)
		}
		members[i], weights[i] = g, float64(g.Len())
		sum += g.Len()
	}
	size := m.num[s]
	if size != nil {
		n := min(*size, sum)
		size = &n
	}
	return newBlended(members, weights, size, s, &m.cache)
}

// gpt is one split of one prefix, without its arrays; nil where nothing is there and nothing, or
// whatever is there, is asked for.
func (m *maker) gpt(prefix string, s Split, row splitRow, num *int64, text string, rows any) (*GPT, error) {
	source, err := m.open(prefix)
	if err != nil {
		return nil, err
	}
	g := GPT{shape: m.shape, source: source, Name: "GPTDataset", Prefix: prefix, Split: s, Num: num}
	g.First, g.End = sequences(row, source.Len())
	if g.First == g.End {
		if num == nil || *num == 0 {
			return nil, nil
		}
		if m.grouped() {
			return nil, exitcode.Errorf(exitcode.BadData, "%s: the range %s contains none of the dataset's %d sequences; widen the range", prefix, text, source.Len())
		}
		return nil, exitcode.Errorf(exitcode.BadData, "%s: the dataset has %d sequences, and the %s split gets none of them with --split %s; add data%s", prefix, source.Len(), s, text, smallSplit(source.Len()))
	}
	made, err := newGPT(g, m.tok, text, rows)
	if err == nil && made.Epochs > 1 {
		m.cache.say(fmt.Sprintf("%s: the run needs %d samples of %d tokens of the %s split, which has %d tokens; the split is repeated %d times, each time in a new order", prefix, *num, m.SequenceLength, s, made.plan.tokens, made.Epochs))
	}
	return made, err
}

func (m *maker) open(prefix string) (*Indexed, error) {
	if x := m.sources[prefix]; x != nil {
		return x, nil
	}
	if store.IsURL(prefix) {
		if err := m.fetchPrefix(prefix); err != nil {
			return nil, err
		}
	}
	path := located(m.Dir, m.ObjectPath, prefix)
	x, err := open(path, openOptions{mapBin: !m.NoMmapBinFiles, eod: m.shape.eod})
	if err != nil {
		return nil, err
	}
	if !m.AnyTokenID {
		if err := checkSidecar(path, x, m.tok, m.tokHash); err != nil {
			return nil, errors.Join(err, x.Close())
		}
	}
	m.sources[prefix] = x
	return x, nil
}

// perSplitWords gathers the lists of the three splits.
func (m *maker) perSplitWords() ([3][]string, error) {
	lists := [3][]string{m.TrainDataPath, m.ValidDataPath, m.TestDataPath}
	if m.PerSplitDataArgsPath == "" {
		return lists, nil
	}
	text, err := readArgs("--per-split-data-args-path", inDir(m.Dir, m.PerSplitDataArgsPath))
	if err != nil {
		return lists, err
	}
	var file map[string]json.RawMessage
	if err := exitcode.JSON(m.PerSplitDataArgsPath, text, &file); err != nil {
		return lists, err
	}
	for s := range lists {
		name := Split(s).String()
		words, ok := wordsOf(file[name])
		if !ok {
			return lists, exitcode.Errorf(exitcode.BadData, "%s: %s must be null, a string or a list of strings", m.PerSplitDataArgsPath, name)
		}
		lists[s] = words
		delete(file, name)
	}
	for _, name := range slices.Sorted(maps.Keys(file)) {
		m.cache.say(fmt.Sprintf("%s: %q is ignored; the keys are train, valid and test", m.PerSplitDataArgsPath, name))
	}
	return lists, nil
}

// wordsOf takes the data of a split from JSON: a list of strings and numbers
// (weights may be either, as in Megatron), a string of words, or null.
func wordsOf(raw json.RawMessage) ([]string, bool) {
	if len(raw) == 0 {
		return nil, true
	}
	var text string
	if json.Unmarshal(raw, &text) == nil && text != "" {
		return strings.Fields(text), true
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return nil, false
	}
	var words []string
	for _, item := range list {
		var word string
		var number json.Number
		switch {
		case json.Unmarshal(item, &word) == nil && item[0] == '"':
		case json.Unmarshal(item, &number) == nil && number != "":
			word = number.String()
		default:
			return nil, false
		}
		words = append(words, word)
	}
	return words, true
}

// maxArgs bounds a file that names data, and the description of a cache made of it, in bytes.
const maxArgs = 256 << 20

func readArgs(flag, path string) ([]byte, error) {
	text, err := exitcode.ReadFile(path, maxArgs)
	if err != nil {
		return nil, exitcode.Errorf(exitcode.CodeOf(err), "%s: %w", flag, err)
	}
	return text, nil
}

// inDir joins a relative path to the folder; "" stays.
func inDir(dir, path string) string {
	if dir == "" || path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}
