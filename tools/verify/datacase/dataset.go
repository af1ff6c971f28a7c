package datacase

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"monotron/dataset"
	"monotron/internal/exitcode"
	"monotron/tokenizer"
)

// runDataset works in a folder of its own, with links to the token files, so
// that caches are never written next to the cases.
func runDataset(root string, c datasetCase) (l list) {
	dir, err := os.MkdirTemp("", "datacase-")
	if err != nil {
		l.add("%v", err)
		return l
	}
	defer os.RemoveAll(dir)
	if c.Golden != "" {
		return checkPair(filepath.Join(root, c.Golden), filepath.Join(dir, "again"), c)
	}
	r := &run{datasetCase: c, root: root, dir: dir}
	if err := r.prepare(); err != nil {
		l.add("%v", err)
		return l
	}
	if c.Error != "" {
		return r.wantError()
	}
	r.checkSets(&l)
	r.checkCacheFiles(&l)
	r.checkSamples(&l)
	return l
}

// run is one case being run.
type run struct {
	datasetCase
	root, dir string
	config    dataset.Config
	tok       tokenizer.Tokenizer
	detail    detail
}

func (r *run) prepare() error {
	if err := r.link(); err != nil {
		return err
	}
	// Expected values that are too long for the case itself.
	if r.Detail != "" {
		data, err := exitcode.ReadFile(filepath.Join(r.root, r.Detail), maxCase)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(data, &r.detail); err != nil {
			return fmt.Errorf("%s: %w", r.Detail, err)
		}
	}
	off := func(b *bool) bool { return b != nil && !*b }
	// The case as flags.
	r.config = dataset.Config{
		Dir: r.dir, Mock: r.PerSplit == nil && len(r.DataPath) == 0, DataPath: r.DataPath, Split: r.Split,
		SequenceLength: r.SeqLength, Seed: r.Seed, Surplus: surplus(r.Extra.Surplus),
		InterDocumentMasking: r.Extra.InterDocument, NoExtraToken: off(r.Extra.ExtraToken),
		KeepPartialValidation: off(r.Extra.DropPartial), AnyTokenID: true,
	}
	if r.PerSplit != nil {
		r.config.TrainDataPath, r.config.ValidDataPath, r.config.TestDataPath = r.PerSplit[0], r.PerSplit[1], r.PerSplit[2]
	}
	if !r.defaultCache() {
		r.config.CachePath = "cache"
	}
	return r.makeTokenizer()
}

// defaultCache: the case's cache files lie next to the data.
func (r *run) defaultCache() bool {
	for name := range r.CacheFiles {
		if strings.Contains(name, "/") {
			return true
		}
	}
	return false
}

// link gives every prefix of the case its path under dir.
func (r *run) link() error {
	words := slices.Clone(r.DataPath)
	if r.PerSplit != nil {
		words = slices.Concat(r.PerSplit[0], r.PerSplit[1], r.PerSplit[2])
	}
	for _, w := range words {
		for _, ext := range []string{".bin", ".idx"} {
			from, to := filepath.Join(r.root, w+ext), filepath.Join(r.dir, w+ext)
			if _, err := os.Stat(from); err != nil {
				continue // a weight
			}
			err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.Symlink(from, to))
			if err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
		}
	}
	return nil
}

// described is a tokenizer under the description of the case's files.
type described struct {
	tokenizer.Tokenizer
	description tokenizer.Description
}

func (d described) Description() tokenizer.Description { return d.description }

// makeTokenizer takes GPT-2's own vocabulary for its two files: the arrays
// depend on their names only. Other files lie next to the case, which names them
// by its own path.
func (r *run) makeTokenizer() (err error) {
	t := r.Tokenizer
	config := tokenizer.Config{Type: t.Type, Model: t.Model, SpecialTokens: t.SpecialTokens, VocabSize: t.VocabSize, NullEOD: t.NullEOD, NullPad: t.NullPad,
		TikPattern: t.TikPattern, TikSpecials: t.TikSpecials, NoSpecial: t.NoSpecial, Legacy: t.Legacy}
	if config.Model != "" {
		config.Model = filepath.Join(r.root, t.Model)
	}
	if r.tok, err = tokenizer.FromConfig(config); err != nil {
		return err
	}
	d := r.tok.Description()
	if d.Path == config.Model {
		d.Path = t.Model
	}
	d.Options = slices.Clone(d.Options)
	for i := range d.Options {
		switch o := &d.Options[i]; {
		case o.Key == "vocab_file" && t.VocabFile != "":
			o.Value = t.VocabFile
		case o.Key == "merges_file" && t.MergeFile != "":
			o.Value = t.MergeFile
		}
	}
	r.tok = described{r.tok, d}
	return nil
}

func (r *run) build(c dataset.Config) (map[string]dataset.Dataset, error) {
	train, valid, test, err := dataset.Build(c, r.tok, r.Sizes)
	return map[string]dataset.Dataset{"train": train, "valid": valid, "test": test}, err
}

// wantError: the case must fail, at the latest when its samples are read.
func (r *run) wantError() (l list) {
	sets, err := r.build(r.config)
	for _, d := range sets {
		for k := int64(0); err == nil && d != nil && k < d.Len(); k++ {
			_, err = d.Sample(k)
		}
	}
	if err == nil {
		l.add("no error; Megatron has %q", r.Error)
	}
	return l
}

var splitNames = []string{"train", "valid", "test"}

func (r *run) checkSets(l *list) {
	sets, err := r.build(r.config)
	if err != nil {
		l.add("%v", err)
		return
	}
	// Each split: whether it exists, its length, its contents, its description.
	for _, s := range splitNames {
		want, set := r.Splits[s], sets[s]
		if want == nil || set == nil {
			same(l, s+" exists", set != nil, want != nil)
			continue
		}
		same(l, s+" length", set.Len(), want.Length)
		checkSet(l, s, set, want)
		if d := r.detail.Splits[s]; d != nil {
			same(l, s+" description", description(set), d.Description)
		}
	}
	// What all of them have in common.
	if got := separate(sets, r.PerSplit != nil); !slices.Equal(got, r.Separate) {
		l.add("separate last epochs are %v, want %v", got, r.Separate)
	}
	if r.Mock != nil {
		raw, err := dataset.I32.Append(nil, dataset.MockLengths())
		if err != nil {
			l.add("%v", err)
		}
		same(l, "mock lengths", hashBytes(raw), r.Mock.SHA256)
	}
}

func description(d dataset.Dataset) string {
	if b, ok := d.(*dataset.Blended); ok {
		return b.DescriptionJSON()
	}
	return d.(*dataset.GPT).DescriptionJSON()
}

func checkSet(l *list, name string, set dataset.Dataset, want *wantSet) {
	switch d := set.(type) {
	case *dataset.Blended:
		same(l, name+" kind", "BlendedDataset", want.Kind)
		same(l, name+" hash", d.Hash, want.Hash)
		sameOrNil(l, name+" size", d.Size, want.Size)
		if !slices.Equal(d.Weights, want.Weights) {
			l.add("%s weights are %v, want %v", name, d.Weights, want.Weights)
		}
		checkArray(l, name+" dataset_index", d.DatasetIndex, want.DatasetIndex)
		checkArray(l, name+" dataset_sample_index", d.DatasetSampleIndex, want.SampleOf)
		same(l, name+" members", len(d.Members), len(want.Members))
		for i, m := range d.Members {
			if i < len(want.Members) {
				checkGPT(l, fmt.Sprintf("%s member %d", name, i), m, want.Members[i])
			}
		}
	case *dataset.GPT:
		checkGPT(l, name, d, want)
	}
}

func checkGPT(l *list, name string, g *dataset.GPT, want *wantSet) {
	same(l, name+" kind", g.Name, want.Kind)
	same(l, name+" length", g.Len(), want.Length)
	same(l, name+" hash", g.Hash, want.Hash)
	same(l, name+" range", [2]int64{g.First, g.End}, want.Range)
	same(l, name+" epochs", g.Epochs, want.Epochs)
	sameOrNil(l, name+" num_samples", g.Num, want.NumSamples)
	if want.DatasetPath != nil {
		same(l, name+" dataset_path", g.Prefix, *want.DatasetPath)
	}
	checkArray(l, name+" document_index", g.DocumentIndex, want.Documents)
	checkArray(l, name+" sample_index", g.SampleIndex, want.Samples)
	checkArray(l, name+" shuffle_index", g.ShuffleIndex, want.Shuffle)
}

func checkArray(l *list, name string, a dataset.Array, want *wantArray) {
	if want == nil {
		l.add("%s is not in the case", name)
		return
	}
	names := map[string]string{"<i2": "int16", "<i4": "int32", "<u4": "uint32", "<i8": "int64"}
	same(l, name+" dtype", names[a.DType], want.DType)
	if !slices.Equal(a.Shape, want.Shape) {
		l.add("%s has shape %v, want %v", name, a.Shape, want.Shape)
	}
	same(l, name, hashBytes(a.Data), want.SHA256)
}

// separate lists, for each GPTDataset in the order Megatron builds them (those
// it finds in its cache are not built), whether its last epoch is separate.
// One blend for all splits goes dataset by dataset, else split by split.
func separate(sets map[string]dataset.Dataset, perSplit bool) (flags []bool) {
	// Members by split, then in the order in which they are built.
	var rows [][]*dataset.GPT
	for _, s := range splitNames {
		switch d := sets[s].(type) {
		case *dataset.Blended:
			rows = append(rows, d.Members)
		case *dataset.GPT:
			rows = append(rows, []*dataset.GPT{d})
		}
	}
	var order []*dataset.GPT
	for _, row := range rows {
		order = append(order, row...)
	}
	if !perSplit {
		order = order[:0]
		for i := 0; len(rows) > 0 && i < len(rows[0]); i++ {
			for _, row := range rows {
				order = append(order, row[i])
			}
		}
	}
	// A set with the hash of an earlier one comes from the cache.
	seen := map[string]bool{}
	for _, g := range order {
		if !seen[g.Hash] {
			flags = append(flags, g.Separate)
		}
		seen[g.Hash] = true
	}
	return flags
}

// expand puts the arrays of the cache files of blends into files of Megatron's form, as the case has them.
func (r *run) expand(base string) error {
	sets, err := r.build(r.config)
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(base, "*-arrays.bin"))
	for _, path := range files {
		err = errors.Join(err, os.Remove(path)) // it stays mapped
	}
	for _, set := range sets {
		if b, ok := set.(*dataset.Blended); ok {
			err = errors.Join(err, b.WriteMegatron(base))
		}
	}
	return err
}

// checkCacheFiles compares names, sizes and bytes of all files written.
func (r *run) checkCacheFiles(l *list) {
	if r.CacheFiles == nil {
		return
	}
	base := filepath.Join(r.dir, r.config.CachePath)
	if r.config.CachePath != "" {
		if err := r.expand(base); err != nil {
			l.add("%v", err)
		}
	}
	found := 0
	// Every existing file must be expected, and its bytes with it.
	err := filepath.WalkDir(base, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		name, err := filepath.Rel(base, path)
		if err != nil {
			return err
		}
		want, known := r.CacheFiles[name]
		if !known {
			l.add("cache file %s is not in the case", name)
			return nil
		}
		found++
		if want == nil {
			return nil
		}
		data, err := exitcode.ReadFile(path, maxCase)
		same(l, name+" size", int64(len(data)), want.Size)
		same(l, name, hashBytes(data), want.SHA256)
		return err
	})
	if err != nil {
		l.add("%v", err)
	}
	same(l, "number of cache files", found, len(r.CacheFiles))
}

// surplus is Megatron's default where a case does not set it.
func surplus(given *float64) float64 {
	if given == nil {
		return 0.005
	}
	return *given
}
