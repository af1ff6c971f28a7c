package safetensors

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"monotron/internal/exitcode"
)

const (
	// SingleName is the file of a folder that is not sharded.
	SingleName = "model.safetensors"
	// IndexName lists the shards of one that is.
	IndexName = "model.safetensors.index.json"

	maxIndex = 100_000_000 // bytes
)

// Folder is one or several files that hold the tensors of one model.
type Folder struct {
	Path  string
	Files []*File // in the order of their names

	where map[string]*File
}

// OpenFolder opens model.safetensors of dir, or the shards that its index
// lists. Every listed tensor must be in its file and the other way round. Both
// kinds in one folder may be two models, of which programs read one or the other.
func OpenFolder(dir string) (*Folder, error) {
	index := filepath.Join(dir, IndexName)
	if _, err := os.Stat(index); err == nil {
		return openIndex(dir, index)
	}
	f, err := Open(filepath.Join(dir, SingleName))
	if err != nil {
		return nil, err
	}
	d := &Folder{Path: dir, Files: []*File{f}, where: map[string]*File{}}
	for _, name := range f.Names() {
		d.where[name] = f
	}
	return d, nil
}

func openIndex(dir, index string) (*Folder, error) {
	weights, err := ReadIndex(index)
	if err != nil {
		return nil, err
	}
	single := filepath.Join(dir, SingleName)
	if _, err := os.Stat(single); err == nil && !slices.Contains(slices.Collect(maps.Values(weights)), SingleName) {
		return nil, exitcode.Errorf(exitcode.BadData, "%s has both %s and an index of other files (%s), and programs differ in which of them they load; remove the one that is not the model", dir, SingleName, IndexName)
	}
	d := &Folder{Path: dir, where: map[string]*File{}}
	if err := d.openShards(index, weights); err != nil {
		_ = d.Close() // the first error counts
		return nil, err
	}
	return d, nil
}

// ReadIndex reads the weight_map of an index, tensor name to file name; names of files are not checked.
func ReadIndex(path string) (map[string]string, error) {
	raw, err := exitcode.ReadFile(path, maxIndex)
	if err != nil {
		return nil, err
	}
	var parts map[string]json.RawMessage
	if err := json.Unmarshal(raw, &parts); err != nil {
		return nil, exitcode.Errorf(exitcode.BadData, "%s is not a JSON object: %w", path, err)
	}
	if parts["weight_map"] == nil {
		return nil, exitcode.Errorf(exitcode.BadData, "%s has no weight_map; an index of safetensors files needs one", path)
	}
	return newParser(path, parts["weight_map"], 0).strings("weight_map")
}

func (d *Folder) openShards(index string, weights map[string]string) error {
	// Tensors by shard, so that each shard is opened once.
	names := make([]string, 0, len(weights))
	for name := range weights {
		names = append(names, name)
	}
	sort.Slice(names, func(a, b int) bool {
		x, y := names[a], names[b]
		return weights[x] < weights[y] || weights[x] == weights[y] && x < y
	})
	open := map[string]*File{}
	for _, name := range names {
		shard := weights[name]
		if !PlainName(shard) {
			return exitcode.Errorf(exitcode.BadData, "%s: tensor %q: %q is not the name of a file in this folder", index, name, shard)
		}
		f := open[shard]
		if f == nil {
			var err error
			if f, err = Open(filepath.Join(d.Path, shard)); err != nil {
				return exitcode.Errorf(exitcode.CodeOf(err), "%s lists %q: %w", index, shard, err)
			}
			open[shard] = f
			d.Files = append(d.Files, f)
		}
		if _, ok := f.Info(name); !ok {
			return exitcode.Errorf(exitcode.BadData, "%s assigns tensor %q to %q, which does not have it", index, name, shard)
		}
		d.where[name] = f
	}
	// A shard has no tensor that the index does not name.
	for _, f := range d.Files {
		for _, name := range f.Names() {
			if d.where[name] != f {
				return exitcode.Errorf(exitcode.BadData, "%s has tensor %q, which %s does not assign to this file", f.Path, name, index)
			}
		}
	}
	return nil
}

// PlainName recognizes a name that stays in its folder.
func PlainName(name string) bool {
	return name != "" && name != "." && name != ".." && filepath.Base(name) == name && !strings.ContainsRune(name, 0)
}

// Close closes every file.
func (d *Folder) Close() error {
	var errs []error
	for _, f := range d.Files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// Names lists all tensors, file by file.
func (d *Folder) Names() []string {
	var names []string
	for _, f := range d.Files {
		names = append(names, f.Names()...)
	}
	return names
}

// File returns the file that holds a tensor; nil for an unknown name.
func (d *Folder) File(name string) *File { return d.where[name] }

// Info is File.Info over all files.
func (d *Folder) Info(name string) (Info, bool) {
	if f := d.where[name]; f != nil {
		return f.Info(name)
	}
	return Info{}, false
}

// ReadAt is File.ReadAt over all files.
func (d *Folder) ReadAt(name string, dst []byte, at int64) error {
	if f := d.where[name]; f != nil {
		return f.ReadAt(name, dst, at)
	}
	return exitcode.Errorf(exitcode.BadData, "%s has no tensor %q", d.Path, name)
}

// Where is the path of the file that holds a tensor; the folder's for an unknown name.
func (d *Folder) Where(name string) string {
	if f := d.where[name]; f != nil {
		return f.Path
	}
	return d.Path
}

// Float32 is File.Float32 over all files.
func (d *Folder) Float32(name string) ([]float32, error) {
	if f := d.where[name]; f != nil {
		return f.Float32(name)
	}
	return nil, exitcode.Errorf(exitcode.BadData, "%s has no tensor %q", d.Path, name)
}
