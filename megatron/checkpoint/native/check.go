package native

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"monotron/megatron/checkpoint"
	"monotron/mpu"
)

var equal = slices.Equal[[]int64]

// maxCount is more iterations, or samples, than a run can take.
const maxCount = 1 << 50

// check believes nothing of a manifest: after it every name, index, box and
// stretch can be used as it stands.
func (m *Manifest) check() error {
	// Counts, the configuration, the tokenizer's files.
	s := m.State
	if s.Iteration < 0 || s.ConsumedTrain < 0 || s.ConsumedValid < 0 || s.SkippedTrain < 0 {
		return fmt.Errorf("the state has a negative count: iteration %d, training samples %d, validation samples %d, skipped training samples %d", s.Iteration, s.ConsumedTrain, s.ConsumedValid, s.SkippedTrain)
	}
	if s.Iteration > maxCount || s.ConsumedTrain > maxCount || s.ConsumedValid > maxCount || s.SkippedTrain > maxCount {
		return fmt.Errorf("the state has a count above %d: iteration %d, training samples %d, validation samples %d, skipped training samples %d", int64(maxCount), s.Iteration, s.ConsumedTrain, s.ConsumedValid, s.SkippedTrain)
	}
	if c := bytes.TrimSpace(s.Config); len(c) > 0 && c[0] != '{' {
		return fmt.Errorf("the run's config begins with %.20q; it must be a JSON object", c)
	}
	if err := checkKept(m.Tokenizer); err != nil {
		return err
	}
	// Files: plain names in this folder, each once.
	names := map[string]bool{}
	for _, f := range m.Files {
		if f.Name == "" || strings.HasPrefix(f.Name, ".") || filepath.Base(f.Name) != f.Name {
			return fmt.Errorf("%q is not a valid name of a file in the folder", f.Name)
		}
		if names[f.Name] {
			return fmt.Errorf("file name %q occurs twice", f.Name)
		}
		names[f.Name] = true
		if f.HeaderBytes < 8 || f.HeaderBytes > f.Bytes {
			return fmt.Errorf("file %q has a header of %d bytes; it must have from 8 to %d, the bytes of the file", f.Name, f.HeaderBytes, f.Bytes)
		}
		if !isSum(f.HeaderXXH3) {
			return fmt.Errorf("file %q has the checksum %q; it must have %d hexadecimal digits", f.Name, f.HeaderXXH3, sumDigits)
		}
	}
	// Tensors, whose pieces must tile them and the files.
	stretches := make([][]stretch, len(m.Files))
	clear(names)
	comparisons := 0
	for i := range m.Tensors {
		t := &m.Tensors[i]
		if t.Name == "" {
			return fmt.Errorf("tensor %d has no name", i)
		}
		if names[t.Name] {
			return fmt.Errorf("tensor %q occurs twice", t.Name)
		}
		names[t.Name] = true
		if err := t.check(m.Files, stretches, &comparisons); err != nil {
			return fmt.Errorf("tensor %q %s%v: %w", t.Name, t.DType, t.Shape, err)
		}
	}
	for i, f := range m.Files {
		if err := f.tiled(stretches[i]); err != nil {
			return fmt.Errorf("file %q: %w", f.Name, err)
		}
	}
	return nil
}

func isSum(s string) bool {
	_, err := hex.DecodeString(s)
	return err == nil && len(s) == sumDigits
}

// stretch is the position of a piece in its file.
type stretch struct{ from, to int64 }

func (t *Tensor) check(files []File, stretches [][]stretch, comparisons *int) error {
	dtype, ok := dtypeOf[t.DType]
	if !ok {
		return fmt.Errorf("the dtype is unknown")
	}
	total, ok := volume(t.Shape, dtype.Size())
	if !ok {
		return fmt.Errorf("the shape is invalid")
	}
	// Each piece is a box of the tensor and a stretch of a file.
	kept := int64(0)
	for i, p := range t.Pieces {
		if !checkpoint.Inside(p.box(), t.Shape) {
			return fmt.Errorf("piece %d, from %v of size %v, is not inside the tensor", i, p.From, p.Size)
		}
		n := t.Bytes(p)
		if kept += n; kept > total {
			return fmt.Errorf("its pieces have more elements than the tensor")
		}
		if p.File < 0 || p.File >= len(files) {
			return fmt.Errorf("piece %d is in file %d, but the %d files are 0 to %d", i, p.File, len(files), len(files)-1)
		}
		if !isSum(p.XXH3) {
			return fmt.Errorf("piece %d has the checksum %q; it must have %d hexadecimal digits", i, p.XXH3, sumDigits)
		}
		if p.Blocks != "" && int64(len(p.Blocks)) != blocksOf(n) {
			return fmt.Errorf("piece %d has %d digits for the checksums of its blocks; it must have %d", i, len(p.Blocks), blocksOf(n))
		}
		f := files[p.File]
		if p.Offset < f.HeaderBytes || p.Offset > f.Bytes-n {
			return fmt.Errorf("piece %d: its %[3]d bytes from byte %[2]d are outside the data of %[4]q", i, p.Offset, n, f.Name)
		}
		stretches[p.File] = append(stretches[p.File], stretch{p.Offset, p.Offset + n})
	}
	// As many bytes as the tensor has, and no two boxes overlap: then nothing is missing.
	if kept != total {
		return fmt.Errorf("its pieces cover only %d of %d bytes: the part of a rank is missing", kept, total)
	}
	return t.disjoint(comparisons)
}

// volume is the number of bytes of shape; ok is false for an invalid tensor.
func volume(shape []int64, size int64) (bytes int64, ok bool) {
	return checkpoint.SafeBytes(shape, size)
}

// disjoint checks that no two pieces share an element; with the right total
// they then tile the tensor.
func (t *Tensor) disjoint(comparisons *int) error {
	boxes := make([]mpu.Piece, len(t.Pieces))
	for i, p := range t.Pieces {
		boxes[i] = p.box()
	}
	return checkpoint.Disjoint(boxes, comparisons)
}

// tiled checks that the pieces cover a file's data exactly once.
func (f *File) tiled(list []stretch) error {
	sort.Slice(list, func(a, b int) bool { return list[a].from < list[b].from })
	end := f.HeaderBytes
	for _, s := range list {
		if s.from != end {
			return fmt.Errorf("bytes %d to %d belong to no piece or to two pieces", min(end, s.from), max(end, s.from))
		}
		end = s.to
	}
	if end != f.Bytes {
		return fmt.Errorf("bytes %d to %d belong to no piece", end, f.Bytes)
	}
	return nil
}
