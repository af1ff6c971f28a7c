package torchdist

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"monotron/internal/exitcode"
	"monotron/internal/pickle"
	"monotron/megatron/checkpoint"
	"monotron/mpu"
)

const (
	commonName = "common.pt"
	classes    = "torch.distributed.checkpoint.metadata."
	storage    = "torch.distributed.checkpoint.filesystem."
)

// stored is a tensor of the checkpoint.
type stored struct {
	key    string
	dtype  string
	shape  []int64
	chunks []chunk
}

// chunk is a box of a tensor as a file of its own inside a .distcp file.
type chunk struct {
	box mpu.Piece
	location
}

// location is a stretch of a .distcp file.
type location struct {
	file           string
	offset, length int64
}

// index is what .metadata says, checked.
type index struct {
	tensors []*stored // in the order of their first chunk's location
	byKey   map[string]*stored
	objects map[string]location
}

// readMarker refuses folders that metadata.json does not call complete.
func readMarker(dir string) error {
	path := filepath.Join(dir, checkpoint.DistMarker)
	text, err := exitcode.ReadFile(path, 1<<20)
	if exitcode.CodeOf(err) == exitcode.NoInput {
		return exitcode.Errorf(exitcode.BadData, "%s is missing, so the save did not complete", path)
	}
	if err != nil {
		return err
	}
	var m struct {
		Backend string `json:"sharded_backend"`
		Version int    `json:"sharded_backend_version"`
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return exitcode.Errorf(exitcode.BadData, "%s: %w", path, err)
	}
	if m.Backend != "torch_dist" || m.Version != 1 {
		return exitcode.Errorf(exitcode.BadData, "%s: sharded_backend %q version %d is not supported; this program reads torch_dist version 1", path, m.Backend, m.Version)
	}
	return nil
}

// readIndex reads and checks .metadata.
func readIndex(dir string) (*index, error) {
	path := filepath.Join(dir, checkpoint.DistMetadata)
	root, err := pickle.Load(path)
	if err != nil {
		return nil, err
	}
	x := &index{byKey: map[string]*stored{}, objects: map[string]location{}}
	if err := x.fill(dir, root); err != nil {
		return nil, exitcode.Errorf(exitcode.BadData, "%s: %w", path, err)
	}
	return x, nil
}

// attributes of an object of one of the listed classes.
func attributes(v pickle.Value, class string) (*pickle.Dict, error) {
	o, ok := v.(*pickle.Object)
	if !ok || !strings.HasSuffix(o.Class, "."+class) || o.Attributes() == nil {
		return nil, fmt.Errorf("found type %s, expected %s", pickle.TypeName(v), class)
	}
	return o.Attributes(), nil
}

func dictOf(d *pickle.Dict, name string) (*pickle.Dict, error) {
	v, _ := d.Get(name)
	inner, ok := v.(*pickle.Dict)
	if !ok {
		return nil, fmt.Errorf("%s has type %s; it must be a dict", name, pickle.TypeName(v))
	}
	return inner, nil
}

func (x *index) fill(dir string, root pickle.Value) error {
	o, ok := root.(*pickle.Object)
	if !ok || o.Attributes() == nil || !strings.HasSuffix(o.Class, "Metadata") {
		return fmt.Errorf("the file contains an object of type %s; it must contain Metadata", pickle.TypeName(root))
	}
	// What there is, and where it is stored.
	described, err := dictOf(o.Attributes(), "state_dict_metadata")
	if err != nil {
		return err
	}
	locations, err := dictOf(o.Attributes(), "storage_data")
	if err != nil {
		return err
	}
	at, err := x.locations(dir, locations)
	if err != nil {
		return err
	}
	used := 0
	// An object, or a tensor of chunks that tile its shape.
	for _, p := range described.Pairs {
		key, ok := p.Key.(string)
		if !ok {
			return fmt.Errorf("state_dict_metadata has a key of type %s; keys must be strings", pickle.TypeName(p.Key))
		}
		if o, ok := p.Value.(*pickle.Object); ok && strings.HasSuffix(o.Class, ".BytesStorageMetadata") {
			where, ok := at[key]
			if !ok {
				return fmt.Errorf("object %q is listed in state_dict_metadata, but not in storage_data", key)
			}
			x.objects[key] = where
			continue
		}
		s, err := readTensor(key, p.Value, at)
		if err != nil {
			return fmt.Errorf("tensor %q: %w", key, err)
		}
		boxes := make([]mpu.Piece, len(s.chunks))
		for i, c := range s.chunks {
			boxes[i] = c.box
		}
		if err := checkpoint.Tile(s.shape, boxes, &used); err != nil {
			return fmt.Errorf("tensor %q: %w", key, err)
		}
		x.byKey[key] = s
		x.tensors = append(x.tensors, s)
	}
	// In the order of the files, so that reading goes forward.
	slices.SortStableFunc(x.tensors, func(a, b *stored) int { return compare(a.chunks[0].location, b.chunks[0].location) })
	return nil
}

func compare(a, b location) int {
	if c := strings.Compare(a.file, b.file); c != 0 {
		return c
	}
	switch {
	case a.offset < b.offset:
		return -1
	case a.offset > b.offset:
		return 1
	}
	return 0
}

// chunkKey names a chunk of a tensor; an object has no corner.
func chunkKey(fqn string, corner []int64) string {
	if corner == nil {
		return fqn
	}
	return fmt.Sprint(fqn, corner)
}

// locations reads storage_data: {MetadataIndex: _StorageInfo}. Every file is in the
// folder, and every stretch in its file.
func (x *index) locations(dir string, d *pickle.Dict) (map[string]location, error) {
	// The size of each file, asked for once.
	sizes := map[string]int64{}
	at := map[string]location{}
	for _, p := range d.Pairs {
		key, err := attributes(p.Key, "MetadataIndex")
		if err != nil {
			return nil, err
		}
		info, err := attributes(p.Value, "_StorageInfo")
		if err != nil {
			return nil, err
		}
		// Name and first element identify a chunk.
		name, _ := key.Get("fqn")
		fqn, ok := name.(string)
		if !ok {
			return nil, fmt.Errorf("the name of a stored item has type %s; it must be a string", pickle.TypeName(name))
		}
		corner, err := cornerOf(key)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", fqn, err)
		}
		where, err := locationOf(dir, info, sizes)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", fqn, err)
		}
		at[chunkKey(fqn, corner)] = where
	}
	return at, nil
}

func cornerOf(key *pickle.Dict) ([]int64, error) {
	v, _ := key.Get("offset")
	if v == nil {
		return nil, nil
	}
	corner, ok := pickle.Ints(v)
	if !ok {
		return nil, fmt.Errorf("its offset has type %s; it must be a list of integers", pickle.TypeName(v))
	}
	return append([]int64{}, corner...), nil
}

func locationOf(dir string, info *pickle.Dict, sizes map[string]int64) (location, error) {
	path, _ := info.Get("relative_path")
	offset, _ := info.Get("offset")
	length, _ := info.Get("length")
	name, ok := path.(string)
	from, okFrom := pickle.Int(offset)
	n, okLength := pickle.Int(length)
	if !ok || !okFrom || !okLength {
		return location{}, fmt.Errorf("its location must be a file, an offset and a length")
	}
	// A file in this folder, and nothing else.
	if name == "" || filepath.Base(name) != name || strings.HasPrefix(name, "..") || name == "." {
		return location{}, fmt.Errorf("%q is not the name of a file in this folder", name)
	}
	if v, _ := info.Get("transform_descriptors"); v != nil {
		if list, ok := pickle.Items(v); !ok || len(list) > 0 {
			return location{}, fmt.Errorf("its bytes in %s are transformed (transform_descriptors), which is not supported", name)
		}
	}
	size, ok := sizes[name]
	if !ok {
		st, err := os.Stat(filepath.Join(dir, name))
		if err != nil || !st.Mode().IsRegular() {
			return location{}, notStored(filepath.Join(dir, name), err)
		}
		size = st.Size()
		sizes[name] = size
	}
	// The stretch lies in it.
	if from < 0 || n < 0 || from > size-n {
		return location{}, fmt.Errorf("%[2]d bytes from byte %[1]d exceed the %[3]d bytes of %[4]s: the file is truncated, or from another save", from, n, size, filepath.Join(dir, name))
	}
	return location{name, from, n}, nil
}

// notStored is the error for a path that is not a file with stored bytes; err is that of Stat.
func notStored(path string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s is missing", path)
	case err != nil:
		return err
	}
	return fmt.Errorf("%s is not a regular file", path)
}

func readTensor(key string, v pickle.Value, at map[string]location) (*stored, error) {
	d, err := attributes(v, "TensorStorageMetadata")
	if err != nil {
		return nil, err
	}
	s := &stored{key: key}
	// Shape and type.
	size, _ := d.Get("size")
	shape, ok := pickle.Ints(size)
	if !ok {
		return nil, fmt.Errorf("its size has type %s; it must be a list of integers", pickle.TypeName(size))
	}
	if s.shape = shape; len(shape) == 0 {
		return nil, fmt.Errorf("the tensor has no dimension")
	}
	properties, _ := d.Get("properties")
	if s.dtype, err = dtypeOf(properties); err != nil {
		return nil, err
	}
	if _, ok := checkpoint.SafeBytes(shape, checkpoint.Width(s.dtype)); !ok {
		return nil, fmt.Errorf("%s%v is too large", s.dtype, shape)
	}
	// Chunks: offsets and sizes in the tensor, and where each is stored.
	list, _ := d.Get("chunks")
	items, _ := pickle.Items(list)
	for _, item := range items {
		c, err := attributes(item, "ChunkStorageMetadata")
		if err != nil {
			return nil, err
		}
		offsets, _ := c.Get("offsets")
		sizes, _ := c.Get("sizes")
		from, ok := pickle.Ints(offsets)
		n, also := pickle.Ints(sizes)
		if !ok || !also {
			return nil, fmt.Errorf("the offsets and sizes of a chunk must be lists of integers")
		}
		where, found := at[chunkKey(key, append([]int64{}, from...))]
		if !found {
			return nil, fmt.Errorf("its chunk at %v is not listed in storage_data", from)
		}
		s.chunks = append(s.chunks, chunk{mpu.Piece{From: from, Size: n}, where})
	}
	if len(s.chunks) == 0 {
		return nil, fmt.Errorf("the tensor has no chunks")
	}
	return s, nil
}

// dtypeOf reads TensorProperties, a tuple that begins with the type; older ones
// are a dict.
func dtypeOf(v pickle.Value) (string, error) {
	o, ok := v.(*pickle.Object)
	if !ok {
		return "", fmt.Errorf("its properties have type %s; they must be a dict", pickle.TypeName(v))
	}
	var first pickle.Value
	if items, ok := pickle.Items(o.State); ok && len(items) > 0 {
		first = items[0]
	} else if d := o.Attributes(); d != nil {
		first, _ = d.Get("dtype")
	}
	t, ok := first.(pickle.DType)
	if name := pickle.TypeOf(t); ok && checkpoint.Width(name) > 0 {
		return name, nil
	}
	return "", fmt.Errorf("elements of type %v are not supported", first)
}
