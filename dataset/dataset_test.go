package dataset

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"monotron/internal/exitcode"
	"monotron/tokenizer"
)

// Claim: numpy's shuffle and torch's randperm, by sequences that
// both printed.
func TestGeneratorsAgainstNumpyAndTorch(t *testing.T) {
	rng := newMersenne(1234)
	for _, want := range [][]int64{{7, 2, 9, 1, 0, 8, 4, 5, 6, 3}, {7, 3, 5, 1, 4, 8, 0, 2, 6, 9}} {
		a := newArray("<u4", 10)
		for i := range int64(10) {
			a.set(i, i)
		}
		shuffle(rng, items[uint32](a))
		if got := values(a); !slices.Equal(got, want) {
			t.Errorf("shuffle: %v, want %v", got, want)
		}
	}
	for seed, want := range [][]int64{{4, 1, 7, 5, 3, 9, 0, 8, 6, 2}, {5, 6, 1, 2, 0, 8, 9, 3, 7, 4}} {
		if got := randperm(10, uint32(seed)); !slices.Equal(got, want) {
			t.Errorf("randperm seed %d: %v, want %v", seed, got, want)
		}
	}
	if got := MockLengths()[:5]; !slices.Equal(got, []int32{3484, 2609, 2094, 1105, 1261}) {
		t.Errorf("mock lengths %v", got)
	}
}

func values(a Array) []int64 {
	out := make([]int64, a.Len())
	for i := range out {
		out[i] = a.At(int64(i))
	}
	return out
}

// worked is a pair whose index arrays were worked out by hand, after Megatron-LM's
// gpt_dataset.py.
func worked(t testing.TB, dir string) string {
	var documents [][][]int32
	next := int32(0)
	for _, n := range []int{3, 8, 6, 4, 9, 7, 5, 3, 8, 6} {
		s := make([]int32, n)
		for i := range s {
			s[i] = next
			next++
		}
		documents = append(documents, [][]int32{s})
	}
	prefix := filepath.Join(dir, "d1")
	write(t, prefix, U16, documents...)
	return prefix
}

func null(t testing.TB, vocab int) tokenizer.Tokenizer {
	tok, err := tokenizer.NewNull(vocab, -1, tokenizer.NoPad)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func count(n int64) *int64 { return &n }

// Claim: the worked example, with the MD5s it gives for the path d1.
func TestWorkedExample(t *testing.T) {
	dir := t.TempDir()
	worked(t, dir)
	cfg := Config{Dir: dir, DataPath: []string{"d1"}, Split: "6,2,2", SequenceLength: 4, Seed: 1234}
	train, valid, test, err := Build(cfg, null(t, 1000), [3]*int64{count(12), count(1), count(1)})
	if err != nil {
		t.Fatal(err)
	}
	if valid == nil || test == nil {
		t.Fatal("a split is missing")
	}
	g := train.(*GPT)
	for name, c := range map[string]struct {
		got  Array
		want string
	}{
		"documents": {g.DocumentIndex, "[2 1 5 0 4 3 0 4 3 2 5 1]"},
		"samples":   {g.SampleIndex, "[0 0 0 4 1 2 1 6 2 2 2 6 4 0 4 4 4 8 5 3 7 0 7 4 7 8 8 3 9 3 10 1 10 5 11 2 11 6]"},
		"shuffle":   {g.ShuffleIndex, "[7 3 5 1 4 8 0 2 6 16 13 10 14 12 9 11 17 15]"},
	} {
		if got := fmt.Sprint(values(c.got)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	if g.Hash != "6eee00b824ed122f9662f293c41ecc96" || !g.Separate {
		t.Errorf("hash %s, separate %v", g.Hash, g.Separate)
	}
	train, _, _, err = Build(cfg, null(t, 1000), [3]*int64{count(17), count(1), count(1)})
	if err != nil || train.(*GPT).Hash != "3fe05d90c99c9f13ab3826d8f9ef0ec4" || train.(*GPT).Separate {
		t.Errorf("17 samples: %+v, %v", train, err)
	}
}

// Claim: weights 3/7 give the order of Megatron-LM's helpers.cpp, also from
// a cache that an earlier build wrote.
func TestBlendOrder(t *testing.T) {
	dir := t.TempDir()
	worked(t, dir)
	cfg := Config{Dir: dir, DataPath: []string{"0.3", "d1", "0.7", "d1"}, Split: "1", SequenceLength: 4, Seed: 1234, CachePath: "cache"}
	for range 2 {
		train, _, _, err := Build(cfg, null(t, 1000), [3]*int64{count(10), nil, nil})
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(values(train.(*Blended).DatasetIndex)); got != "[1 0 1 1 0 1 1 0 1 1]" {
			t.Errorf("order %s", got)
		}
	}
}

// Claim: a cache that does not fit the data any more is rebuilt, a damaged one
// too, and the arrays are the same as before.
func TestStaleCache(t *testing.T) {
	dir := t.TempDir()
	worked(t, dir)
	notes := 0
	cfg := Config{Dir: dir, DataPath: []string{"d1"}, Split: "1", SequenceLength: 4, Seed: 1234, Notice: func(text string) {
		if strings.Contains(text, "rebuilt") {
			notes++
		}
	}}
	build := func() *GPT {
		train, _, _, err := Build(cfg, null(t, 1000), [3]*int64{count(30), nil, nil})
		if err != nil {
			t.Fatal(err)
		}
		return train.(*GPT)
	}
	want := fmt.Sprint(values(build().SampleIndex))
	if build(); notes != 0 {
		t.Error("a good cache was not taken")
	}
	files, err := filepath.Glob(filepath.Join(dir, "d1/cache/GPTDataset_indices/*.npy"))
	if err != nil || len(files) != 3 {
		t.Fatalf("%d cache files, %v", len(files), err)
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, bad := range [][]byte{data[:len(data)-1], append(slices.Clone(data[:len(data)-2]), 0xff, 0x7f), nil} {
			if err := os.WriteFile(f+".new", bad, 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(f+".new", f); err != nil {
				t.Fatal(err)
			}
			notes = 0
			if got := fmt.Sprint(values(build().SampleIndex)); got != want || notes != 1 {
				t.Errorf("%s of %d bytes: %s with %d notices", filepath.Base(f), len(bad), got, notes)
			}
		}
	}
	// other data of the same size under the same path
	write(t, filepath.Join(dir, "d1"), U16, [][]int32{make([]int32, 50)}, [][]int32{{1}}, [][]int32{{1}}, [][]int32{{1}}, [][]int32{{1}}, [][]int32{{1}}, [][]int32{{1}}, [][]int32{{1}}, [][]int32{{1}}, [][]int32{{1}})
	if notes = 0; fmt.Sprint(values(build().SampleIndex)) == want || notes != 1 {
		t.Error("replaced data was not noticed")
	}
}

// Claim: several builders at once, with one cache, all get the same arrays.
func TestConcurrentBuilds(t *testing.T) {
	dir := t.TempDir()
	worked(t, dir)
	var built atomic.Int64
	left := func() (int64, string) { // is asked before arrays are built
		built.Add(1)
		time.Sleep(50 * time.Millisecond)
		return math.MaxInt64, ""
	}
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			cfg := Config{Dir: dir, DataPath: []string{"d1"}, Split: "6,2,2", SequenceLength: 4, Seed: 1234, Left: left}
			train, _, _, err := Build(cfg, null(t, 1000), [3]*int64{count(12), count(1), count(1)})
			if err != nil || fmt.Sprint(values(train.(*GPT).ShuffleIndex)[:3]) != "[7 3 5]" {
				t.Errorf("%v, %v", train, err)
			}
		})
	}
	wait.Wait()
	if n := built.Load(); n != 3 {
		t.Errorf("8 builders built %d times the arrays of 3 splits", n)
	}
	for _, pattern := range []string{".*", "*building"} {
		if left, _ := filepath.Glob(filepath.Join(dir, "d1/cache/GPTDataset_indices", pattern)); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
	}
}

// Claim (docs/data.md): the check of a cached array reads all of a small one, and at blocks
// of a large one, from its start to its end.
func TestSampled(t *testing.T) {
	for _, n := range []int64{0, 1, 1 << 20, 1<<20 + 1, 5_000_003} {
		read, last, gap := int64(0), int64(-1), int64(0)
		sampled(n, func(i int64) bool {
			if i > last {
				read, gap, last = read+1, max(gap, i-last), i
			}
			return true
		})
		if last != n-1 || n <= 1<<20 && read != n || read > 1<<20+1024 || gap > max(1, n/1024) {
			t.Errorf("of %d it looks at %d, at most %d apart, %d last", n, read, gap, last)
		}
	}
	if sampled(5_000_003, func(i int64) bool { return i != 5_000_002 }) {
		t.Error("the last one was not looked at")
	}
}

// Claim (docs/data.md): what the check of a cached array has not seen is an error where it is
// used, with the sample, and never another sample.
func TestDamagedIndex(t *testing.T) {
	dir := t.TempDir()
	worked(t, dir)
	for name, damage := range map[string]func(g *GPT){
		"a document that is not of the split": func(g *GPT) { g.DocumentIndex.set(0, 1<<20) },
		"a place after the documents":         func(g *GPT) { g.SampleIndex.set(2, 1<<20) },
		"a place before the last one":         func(g *GPT) { g.SampleIndex.set(0, 5); g.SampleIndex.set(2, 1) },
		"a sample that is too short":          func(g *GPT) { g.SampleIndex.set(3, g.SampleIndex.At(3)-1) },
		"a sample that is too long":           func(g *GPT) { g.SampleIndex.set(2, g.DocumentIndex.Len()-1) },
		"an order beyond the samples":         func(g *GPT) { g.ShuffleIndex.set(0, 1<<20) },
	} {
		train, _, _, err := Build(Config{Dir: dir, DataPath: []string{"d1"}, Split: "1", SequenceLength: 4, Seed: 1234, NoCache: true}, null(t, 1000), [3]*int64{count(12), nil, nil})
		if err != nil {
			t.Fatal(err)
		}
		g := train.(*GPT)
		g.ShuffleIndex.set(0, 0)
		damage(g)
		if s, err := g.Sample(0); exitcode.CodeOf(err) != exitcode.BadData {
			t.Errorf("%s: %v, %v", name, s.Tokens, err)
		}
	}
}

// Claim (docs/data.md): where a split gets no sequence the error names one that works.
func TestSmallCorpusNamesASplit(t *testing.T) {
	dir := t.TempDir()
	for n := range int64(12) {
		prefix := fmt.Sprint("n", n)
		b, err := NewBuilder(filepath.Join(dir, prefix), U16)
		if err != nil {
			t.Fatal(err)
		}
		for range n {
			if err := b.AddDocument([]int32{1, 2, 3, 4, 5, 6}, []int32{6}); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.Finalize(); err != nil {
			t.Fatal(err)
		}
		build := func(split string, valid, test *int64) error {
			_, _, _, err := Build(Config{Dir: dir, DataPath: []string{prefix}, Split: split, SequenceLength: 4, Seed: 1, NoCache: true}, null(t, 1000), [3]*int64{count(1), valid, test})
			return err
		}
		err = build("969,30,1", count(1), count(1))
		_, advice, found := strings.Cut(fmt.Sprint(err), "give --split ")
		switch {
		case n == 0 && (err == nil || found):
			t.Errorf("no sequence: %v", err)
		case n > 0 && !found:
			t.Errorf("%d sequences: %v", n, err)
		case n > 0:
			split, _, _ := strings.Cut(strings.ReplaceAll(advice, ", which", " "), " ")
			weights, err := parseSplit(split)
			wanted := func(s Split) *int64 {
				if weights[s] == nil {
					return count(0)
				}
				return count(1)
			}
			if err = errors.Join(err, build(split, wanted(Valid), wanted(Test))); err != nil {
				t.Errorf("%d sequences and --split %s: %v", n, split, err)
			}
		}
	}
}

// Claim (docs/data.md): a pair's sidecar keeps the tokenizer that made it, also where both have
// moved to another folder.
func TestRecordedTokenizer(t *testing.T) {
	dir := t.TempDir()
	b, err := NewBuilder(filepath.Join(dir, "a"), U16)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(b.AddDocument([]int32{1}, []int32{1}), b.Finalize(), os.WriteFile(filepath.Join(dir, "chars.json"), []byte("[]"), 0o644)); err != nil {
		t.Fatal(err)
	}
	prefix, gone := filepath.Join(dir, "a"), filepath.Join(dir, "elsewhere", "chars.json")
	settings := tokenizer.Config{Type: "CharTokenizer", VocabFile: gone}
	if err := NewSidecar(null(t, 1000), settings, b, false, 0).Write(prefix); err != nil {
		t.Fatal(err)
	}
	for _, words := range [][]string{{prefix}, {"0.3", filepath.Join(dir, "none"), "0.7", prefix}} {
		got, from := RecordedTokenizer(words)
		if got.Type != "CharTokenizer" || got.VocabFile != filepath.Join(dir, "chars.json") || from != prefix+".json" {
			t.Errorf("%v: %+v, %s", words, got, from)
		}
	}
	if got, from := RecordedTokenizer([]string{filepath.Join(dir, "none")}); !got.IsZero() || from != "" {
		t.Errorf("%+v, %s", got, from)
	}
}

// Claim: a token outside the vocabulary is refused with its position when it is read.
func TestTokenOutsideVocabulary(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "x")
	write(t, prefix, U16, [][]int32{{1, 2, 3, 50, 5, 6}})
	train, _, _, err := Build(Config{DataPath: []string{prefix}, Split: "1", SequenceLength: 4, Seed: 1}, null(t, 50), [3]*int64{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = train.Sample(0)
	if exitcode.CodeOf(err) != exitcode.BadData || !strings.Contains(err.Error(), "x.bin, byte 6") || !strings.Contains(err.Error(), "id 50") {
		t.Errorf("%v", err)
	}
	if _, err := train.Sample(1); err == nil {
		t.Error("sample 1 of 1 was read")
	}
}

// Claim: flags that cannot be, and data that gives nothing, are errors with
// their exit codes; all problems of the flags come together.
func TestBuildErrors(t *testing.T) {
	dir := t.TempDir()
	worked(t, dir)
	write(t, filepath.Join(dir, "short"), U16, [][]int32{{1, 2, 3}})
	write(t, filepath.Join(dir, "none"), U16)
	for name, c := range map[string]struct {
		cfg  Config
		num  [3]*int64
		code exitcode.Code
		says []string
	}{
		"nothing":       {Config{}, [3]*int64{}, exitcode.Usage, []string{"--data-path", "--seq-length must be from 1 to 2147483646, not 0"}},
		"twice":         {Config{DataPath: []string{"d1"}, Mock: true, Split: "x"}, [3]*int64{}, exitcode.Usage, []string{"more than once", `--split "x" must have one to three numbers (training, validation, test)`}},
		"mixed weights": {Config{DataPath: []string{"1", "d1", "d1", "d1"}, SequenceLength: 4}, [3]*int64{}, exitcode.Usage, []string{"weights"}},
		"zero weight":   {Config{DataPath: []string{"0", "d1"}, SequenceLength: 4}, [3]*int64{}, exitcode.Usage, []string{"positive"}},
		"zero split":    {Config{DataPath: []string{"d1"}, SequenceLength: 4, Split: "0,0"}, [3]*int64{}, exitcode.Usage, []string{"zero"}},
		"no such pair":  {Config{DataPath: []string{"d9"}, SequenceLength: 4, Split: "1"}, [3]*int64{}, exitcode.NoInput, []string{"d9.idx"}},
		"empty list":    {Config{DataArgsPath: "none.bin", SequenceLength: 4, Split: "1"}, [3]*int64{}, exitcode.BadData, []string{"none.bin is empty"}},
		"no such list":  {Config{DataArgsPath: "d9", SequenceLength: 4, Split: "1"}, [3]*int64{}, exitcode.NoInput, []string{"d9"}},
		"empty split":   {Config{DataPath: []string{"d1"}, SequenceLength: 4, Split: "99,0,1"}, [3]*int64{count(1), count(0), count(1)}, exitcode.BadData, []string{"test split"}},
		"empty data":    {Config{DataPath: []string{"none"}, SequenceLength: 4, Split: "1"}, [3]*int64{count(5), nil, nil}, exitcode.BadData, []string{"none", "has 0 sequences"}},
		"short member":  {Config{DataPath: []string{"d1", "short"}, SequenceLength: 4, Split: "1"}, [3]*int64{count(5), nil, nil}, exitcode.BadData, []string{"short", "4 tokens"}},
		"blend size":    {Config{DataPath: []string{"1", "d1", "2", "d1"}, SequenceLength: 4, Split: "1"}, [3]*int64{}, exitcode.Usage, []string{"number of samples"}},
		"cache":         {Config{DataPath: []string{"d1"}, SequenceLength: 4, Split: "1", CachePath: "d1.bin/x"}, [3]*int64{}, exitcode.IO, []string{"d1.bin"}},
	} {
		c.cfg.Dir = dir
		_, _, _, err := Build(c.cfg, null(t, 1000), c.num)
		if err == nil || exitcode.CodeOf(err) != c.code {
			t.Errorf("%s: %v, exit code %d, want %d", name, err, exitcode.CodeOf(err), c.code)
			continue
		}
		for _, s := range c.says {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%s: %q does not say %q", name, err, s)
			}
		}
	}
}

// Claim: data given per split, by flags or by a JSON file of lists, strings and
// nulls, weights as strings or numbers, is the same data. A key that is not a split is reported.
func TestPerSplitFile(t *testing.T) {
	dir := t.TempDir()
	worked(t, dir)
	if err := os.WriteFile(filepath.Join(dir, "args.json"), []byte(`{"train": ["0.5", "d1", "0.5", "d1"], "valid": "d1", "test": null}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "numbers.json"), []byte(`{"train": [5e-1, "d1", 0.5, "d1"], "valid": ["d1"], "tset": "d1"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	var notes []string
	for _, cfg := range []Config{
		{PerSplitDataArgsPath: "args.json"},
		{PerSplitDataArgsPath: "numbers.json", Notice: func(s string) { notes = append(notes, s) }},
		{TrainDataPath: []string{"0.5", "d1", "0.5", "d1"}, ValidDataPath: []string{"d1"}},
	} {
		cfg.Dir, cfg.SequenceLength = dir, 4
		train, valid, test, err := Build(cfg, null(t, 1000), [3]*int64{count(5), count(5), count(5)})
		if err != nil {
			t.Fatal(err)
		}
		_, blended := train.(*Blended)
		if v, plain := valid.(*GPT); !blended || !plain || v.First != 0 || v.End != 10 || test != nil {
			t.Errorf("%T %T %T", train, valid, test)
		}
	}
	if !slices.Contains(notes, `numbers.json: "tset" is ignored; the keys are train, valid and test`) {
		t.Errorf("notes: %q", notes)
	}
}

// Claim: a sampler depends on the consumed samples alone, so that going through
// an epoch in one pass, in steps, or on another sampler gives the same numbers,
// and that in every order no sample is read twice within an epoch.
func TestSamplersResume(t *testing.T) {
	for _, c := range []SamplerConfig{
		{Order: Single, Total: 50, MicroBatch: 3, DP: 2},
		{Order: Cyclic, Total: 50, MicroBatch: 3, DP: 2},
		{Order: Cyclic, Total: 50, MicroBatch: 3, DP: 2, Unsharded: true},
		{Order: FullValidation, Total: 49, MicroBatch: 1, DP: 2},
	} {
		seen := map[int64]bool{}
		for c.Rank = 0; c.Rank < c.DP; c.Rank++ {
			s, err := NewSampler(c)
			if err != nil {
				t.Fatal(err)
			}
			for consumed := int64(0); consumed < 48; consumed += s.Advance() {
				got, err := s.Batch(consumed, nil)
				if err != nil {
					t.Fatal(err)
				}
				fresh, err := NewSampler(c)
				if err != nil {
					t.Fatal(err)
				}
				if again, err := fresh.Batch(consumed, nil); err != nil || !slices.Equal(got, again) {
					t.Errorf("%+v at %d: %v, then %v", c, consumed, got, again)
				}
				for _, k := range got {
					if seen[k] || k < 0 || k >= c.Total {
						t.Errorf("%+v at %d: sample %d twice, or none of %d", c, consumed, k, c.Total)
					}
					seen[k] = true
				}
			}
			if _, err := s.Batch(54, nil); c.Order != Cyclic && !errors.Is(err, io.EOF) {
				t.Errorf("%+v: beyond the end: %v", c, err)
			}
		}
	}
}

// Claim: a run that is resumed under another layout reads the samples that it
// would have read, in the same order, over the ends of epochs too: the order is
// that of the layout it began with.
func TestCyclicOrderOutlivesItsLayout(t *testing.T) {
	for _, unsharded := range []bool{false, true} {
		want := cyclicOrder(t, SamplerConfig{MicroBatch: 3, DP: 2, Unsharded: unsharded})
		for _, d := range []Draw{{1, 6}, {2, 3}, {6, 1}, {3, 1}, {12, 1}, {1, 4}} {
			c := SamplerConfig{MicroBatch: d.MicroBatch, DP: d.DP, Unsharded: unsharded, Drawn: Draw{3, 2}}
			if got := cyclicOrder(t, c); !slices.Equal(got, want) {
				t.Errorf("%+v: %v, want %v", c, got, want)
			}
		}
		if slices.Equal(cyclicOrder(t, SamplerConfig{MicroBatch: 6, DP: 1, Unsharded: unsharded}), want) {
			t.Error("a run that begins with another layout has the same order: nothing was compared")
		}
	}
}

// cyclicOrder is what all ranks read of 50 samples, from the 12th to the 120th.
func cyclicOrder(t *testing.T, c SamplerConfig) (numbers []int64) {
	t.Helper()
	c.Order, c.Total = Cyclic, 50
	for consumed := int64(12); consumed < 120; consumed += c.MicroBatch * c.DP {
		for c.Rank = 0; c.Rank < c.DP; c.Rank++ {
			s, err := NewSampler(c)
			if err != nil {
				t.Fatal(err)
			}
			if numbers, err = s.Batch(consumed, numbers); err != nil {
				t.Fatal(err)
			}
		}
	}
	return numbers
}

// Claim (docs/flags.md): the sets of mock data are the same whatever --split says, but one whose part is zero is left out.
func TestMockSplit(t *testing.T) {
	build := func(split string) (sets [3]Dataset, said string) {
		t.Helper()
		n := int64(40)
		tok, err := tokenizer.NewNull(50, -1, tokenizer.NoPad)
		if err != nil {
			t.Fatal(err)
		}
		c := Config{Mock: true, Split: split, SequenceLength: 16, NoCache: true, AllowAmbiguousPad: true, Notice: func(text string) { said += text }}
		if sets[Train], sets[Valid], sets[Test], err = Build(c, tok, [3]*int64{&n, &n, &n}); err != nil {
			t.Fatal(err)
		}
		return sets, said
	}
	all, said := build("")
	if said != "" {
		t.Error(said)
	}
	for split, left := range map[string][]Split{"50,50,0": {Test}, "1": {Valid, Test}, "0,1,1": {Train}, "90,5,5": nil} {
		sets, said := build(split)
		if !strings.Contains(said, "each set has a third") {
			t.Errorf("%s: %q", split, said)
		}
		for s := range sets {
			if gone := slices.Contains(left, Split(s)); gone != (sets[s] == nil) {
				t.Errorf("%s: %s is %v", split, Split(s), sets[s])
			} else if !gone {
				got, err1 := sets[s].Sample(3)
				want, err2 := all[s].Sample(3)
				if err := errors.Join(err1, err2); err != nil || !slices.Equal(got.Tokens, want.Tokens) {
					t.Errorf("%s: another sample of %s (%v)", split, Split(s), err)
				}
			}
		}
	}
}
