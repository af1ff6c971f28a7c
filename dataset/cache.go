package dataset

import (
	"crypto/md5"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"

	"monotron/internal/atomicfile"
	"monotron/internal/exitcode"
)

// cache keeps index arrays in files, under Megatron's names. One of the processes that need
// them builds them (atomicfile.Lease); files are renamed only when they are complete, so that any
// number may. All read the files, which are mapped: a host holds them in memory once.
type cache struct {
	path    string // --data-cache-path; "" puts GPTDatasets next to their data
	base    string // what relative prefixes start from
	objects string // where files of s3:// prefixes are
	none    bool   // nothing is read or written
	notice  func(string)
	left    func() (bytes int64, of string) // for arrays that are built; nil: not known
	waiting func()                          // is called while another process builds; nil: nobody
}

// make gives arrays from the cache, or has them built and stored under a lease. load reports
// whether they are there, and takes them; why not it says once. build reports whether what it gives is that of files.
func (c *cache) make(path string, load func(say func(string)) bool, build func() (mapped bool, err error)) error {
	if load(c.say) {
		return nil
	}
	again := func() bool { return load(func(string) {}) }
	var l *atomicfile.Lease
	if path != "" && os.MkdirAll(filepath.Dir(path), 0o755) == nil {
		loaded := false
		ready := func() bool {
			loaded = again()
			return loaded
		}
		l = atomicfile.NewLease(path, ready, c.wait)
		defer l.End()
		if loaded || l != nil && again() { // another process has stored them since
			return nil
		}
	}
	mapped, err := build()
	if err != nil {
		return err
	}
	if l != nil && !mapped {
		again() // of files that other processes map, too; else the arrays stay as they were built
	}
	return nil
}

func (c *cache) wait() {
	if c.waiting != nil {
		c.waiting()
	}
}

// leasePath is the file of the lease for g's files, "" for none.
func (c *cache) leasePath(g *GPT) string {
	if dir := c.dir(g); dir != "" {
		return cacheFile(dir, g.Hash, g.Name, g.Split, "building")
	}
	return ""
}

// dir is where g's files are, "" for nowhere.
func (c *cache) dir(g *GPT) string {
	if c.none {
		return ""
	}
	if c.path != "" || g.Prefix == "" {
		return c.path
	}
	return filepath.Join(located(c.base, c.objects, g.Prefix), "cache", g.Name+"_indices")
}

func cacheFile(dir, hash, class string, split Split, what string) string {
	return filepath.Join(dir, hash+"-"+class+"-"+split.String()+"-"+what)
}

// load takes g's arrays from the cache: true when all four files are there and
// fit the plan and the data's lengths. Anything else is rebuilt.
func (c *cache) load(g *GPT, p plan, say func(string)) bool {
	dir := c.dir(g)
	if dir == "" {
		return false
	}
	name := func(what string) string { return cacheFile(dir, g.Hash, g.Name, g.Split, what) }
	if text, err := exitcode.ReadFile(name("description.txt"), maxArgs); err != nil || string(text) != g.DescriptionJSON() {
		return false
	}
	var ok [3]bool
	found := *g
	found.DocumentIndex, ok[0] = loadNPY(name("document_index.npy"), "<i4", p.epochs*(g.End-g.First))
	found.SampleIndex, ok[1] = loadNPY(name("sample_index.npy"), g.sampleType(), p.samples+1, 2)
	found.ShuffleIndex, ok[2] = loadNPY(name("shuffle_index.npy"), shuffleType(p.samples), p.samples)
	fits := false
	err := Guard("the cached index "+name("*"), func() error {
		fits = ok == [3]bool{true, true, true} && found.fitsData(p, c.older(g, name("description.txt")))
		return nil
	})
	switch {
	case err != nil: // of the cache, or of the data: then building it is an error
		say(err.Error() + "; the cached files are rebuilt")
	case !fits:
		say("the cached index " + name("*") + " does not match the current data; the cached files are rebuilt")
	default:
		*g = found
	}
	return err == nil && fits
}

// older says that the token files may have changed since the cache was written.
func (c *cache) older(g *GPT, description string) bool {
	cached, err := os.Stat(description)
	data, err2 := os.Stat(located(c.base, c.objects, g.Prefix) + ".idx")
	return g.Prefix != "" && (err != nil || err2 != nil || !changed(data).Before(cached.ModTime()))
}

// sampled are the numbers below n that a check of a cached array reads: all of the first
// 2^20, beyond that a block of 1,024 in each of 1,024 equal parts, and the last block.
// What stands between is checked where it is used.
func sampled(n int64, fits func(i int64) bool) bool {
	const block, blocks = 1024, 1024
	read := func(from, to int64) bool {
		for i := from; i < to; i++ {
			if !fits(i) {
				return false
			}
		}
		return true
	}
	if n <= block*blocks {
		return read(0, n)
	}
	for b := range int64(blocks) {
		from := n / blocks * b
		if !read(from, from+block) {
			return false
		}
	}
	return read(n-block, n)
}

// fitsData checks whether the token files changed under the cache: it
// walks the samples again, all of them where the files are younger than the
// cache, else the first and last ones, and reads document numbers.
func (g *GPT) fitsData(p plan, all bool) bool {
	fits := sampled(g.DocumentIndex.Len(), func(i int64) bool {
		doc := g.DocumentIndex.At(i)
		return doc >= g.First && doc < g.End
	})
	if !fits {
		return false
	}
	const checked = 1024
	for row := int64(0); row < p.samples; row++ {
		if row == checked && p.samples > 2*checked && !all {
			row = p.samples - checked
		}
		at, off := g.SampleIndex.At(2*row), g.SampleIndex.At(2*row+1)
		if at >= g.DocumentIndex.Len() || off > g.source.Size(g.DocumentIndex.At(at)) {
			return false
		}
		nextAt, nextOff, _ := g.step(at, off)
		if nextAt != g.SampleIndex.At(2*row+2) || nextOff != g.SampleIndex.At(2*row+3) {
			return false
		}
	}
	return sampled(p.samples, func(i int64) bool { return g.ShuffleIndex.At(i) < p.samples })
}

// store writes g's arrays, the description last. The folder next to the data may
// be read-only; then the arrays live in memory only.
func (c *cache) store(g *GPT) error {
	dir := c.dir(g)
	if dir == "" {
		return nil
	}
	err := writeArrays(dir, g.Hash, g.Name, g.Split, g.DescriptionJSON(), map[string]Array{
		"document_index.npy": g.DocumentIndex,
		"sample_index.npy":   g.SampleIndex,
		"shuffle_index.npy":  g.ShuffleIndex,
	})
	if err != nil && c.path == "" {
		c.say("the index arrays are not saved and stay in memory: " + err.Error() + "; set --data-cache-path to a folder where they can be saved")
		return nil
	}
	return err
}

func writeArrays(dir, hash, class string, split Split, description string, arrays map[string]Array) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return exitcode.With(exitcode.IO, err)
	}
	var err error
	for what, a := range arrays {
		err = errors.Join(err, atomicfile.WriteFile(cacheFile(dir, hash, class, split, what), 0o666, a.NPYHeader(), a.Data))
	}
	if err == nil {
		err = atomicfile.WriteFile(cacheFile(dir, hash, class, split, "description.txt"), 0o666, []byte(description))
	}
	return err
}

// loadNPY maps an array; ok is false where the file is missing or another's.
// The mapping lives as long as the process.
func loadNPY(path, dtype string, shape ...int64) (Array, bool) {
	b, err := openBlob(path, true)
	if err != nil {
		return Array{}, false
	}
	var a Array
	var ok bool
	err = Guard(path, func() error {
		a, ok = parseNPY(b.data, dtype, shape...)
		return nil
	})
	if ok = ok && err == nil; !ok {
		_ = b.close()
	}
	return a, ok
}

func (c *cache) say(text string) {
	if c.notice != nil {
		c.notice(text)
	}
}

func md5Hex(text string) string {
	sum := md5.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}
