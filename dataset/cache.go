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

// cache keeps index arrays in files, under Megatron's names. Files are only ever
// renamed into place whole, so any number of processes may build at once.
type cache struct {
	path   string // --data-cache-path; "" puts GPTDatasets beside their data
	base   string // what relative prefixes start from
	none   bool   // nothing is read or written
	notice func(string)
	left   func() (bytes int64, of string) // for arrays that are built; nil: not known
}

// dir is where g's files are, "" for nowhere.
func (c *cache) dir(g *GPT) string {
	if c.none {
		return ""
	}
	if c.path != "" || g.Prefix == "" {
		return c.path
	}
	return filepath.Join(inDir(c.base, g.Prefix), "cache", g.Name+"_indices")
}

func cacheFile(dir, hash, class string, split Split, what string) string {
	return filepath.Join(dir, hash+"-"+class+"-"+split.String()+"-"+what)
}

// load takes g's arrays from the cache: true when all four files are there and
// fit the plan and the data's lengths. Anything else is rebuilt.
func (c *cache) load(g *GPT, p plan) bool {
	dir := c.dir(g)
	if dir == "" {
		return false
	}
	name := func(what string) string { return cacheFile(dir, g.Hash, g.Name, g.Split, what) }
	if text, err := exitcode.ReadFile(name("description.txt"), maxArgs); err != nil || string(text) != g.DescriptionJSON() {
		return false
	}
	var ok [3]bool
	g.DocumentIndex, ok[0] = loadNPY(name("document_index.npy"), "<i4", p.epochs*(g.End-g.First))
	g.SampleIndex, ok[1] = loadNPY(name("sample_index.npy"), g.sampleType(), p.samples+1, 2)
	g.ShuffleIndex, ok[2] = loadNPY(name("shuffle_index.npy"), shuffleType(p.samples), p.samples)
	fits := false
	err := Guard("the cached index "+name("*"), func() error {
		fits = ok == [3]bool{true, true, true} && g.fitsData(p, c.older(g, name("description.txt")))
		return nil
	})
	switch {
	case err != nil: // of the cache, or of the data: then building it is an error
		c.say(err.Error() + "; it is rebuilt")
	case !fits:
		c.say("the cached index " + name("*") + " does not match the current data; it is rebuilt")
	}
	return err == nil && fits
}

// older says that the token files may have changed since the cache was written.
func (c *cache) older(g *GPT, description string) bool {
	cached, err := os.Stat(description)
	data, err2 := os.Stat(inDir(c.base, g.Prefix) + ".idx")
	return g.Prefix != "" && (err != nil || err2 != nil || !changed(data).Before(cached.ModTime()))
}

// fitsData looks for signs that the token files changed under the cache: it
// walks the samples again, all of them where the files are younger than the
// cache, else the first and last ones, and looks at every document number.
func (g *GPT) fitsData(p plan, all bool) bool {
	for i := int64(0); i < g.DocumentIndex.Len(); i++ {
		if doc := g.DocumentIndex.At(i); doc < g.First || doc >= g.End {
			return false
		}
	}
	const look = 1024
	for row := int64(0); row < p.samples; row++ {
		if row == look && p.samples > 2*look && !all {
			row = p.samples - look
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
	for i := int64(0); i < p.samples; i++ {
		if g.ShuffleIndex.At(i) >= p.samples {
			return false
		}
	}
	return true
}

// store writes g's arrays, the description last. The folder beside the data may
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
		c.say("the index arrays stay in memory: " + err.Error() + "; set --data-cache-path to another folder for them")
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
