package gguf

import (
	"context"
	"fmt"
	"math"

	"monotron/internal/exitcode"
	"monotron/internal/parallelio/blocks"
)

// version is the one that is written.
const version = 3

// Pair is a key of the metadata with its value: string, bool, uint32, int32,
// uint64, float32, or a slice of string, int32, float32 or bool.
type Pair struct {
	Key   string
	Value any
}

// Output is a tensor to write.
type Output struct {
	Name string
	Dims []int64 // ggml's order: elements of a row first
	Type Type    // Writable; its blocks divide a row
	Unit int64   // Fill makes multiples of so many rows; 0: 1
	// Fill writes the rows [from, to) into dst. It may be called from several goroutines.
	Fill func(from, to int64, dst []byte) error
}

// blockBytes of a tensor are made at a time, more or less, or one unit of it.
const blockBytes = 8 << 20

// Write makes the file path, which has its name only when it is complete and on
// disk, and returns its size.
func Write(ctx context.Context, path string, metadata []Pair, tensors []Output) (int64, error) {
	head, err := describe(metadata, tensors)
	if err != nil {
		return 0, exitcode.With(exitcode.Internal, err)
	}
	list := []blocks.Block{blocks.Head(0, head)}
	at := int64(len(head))
	for i := range tensors {
		t := &tensors[i]
		rows, row := t.rows(), t.Type.Bytes(t.Dims[0])
		unit := max(1, t.Unit)
		step := (blocks.Step(rows, row, blockBytes) + unit - 1) / unit * unit
		for r := int64(0); r < rows; r += step {
			end := min(rows, r+step)
			list = append(list, blocks.Block{Offset: at + r*row, Bytes: (end - r) * row, Fill: func(dst []byte) error { return t.Fill(r, end, dst) }})
		}
		size := rows * row
		at += size
		if gap := padding(size); gap > 0 {
			list = append(list, blocks.Head(at, make([]byte, gap)))
			at += gap
		}
	}
	return blocks.Write(ctx, path, list)
}

func (t *Output) rows() int64 {
	n := int64(1)
	for _, d := range t.Dims[1:] {
		n *= d
	}
	return n
}

func padding(size int64) int64 {
	return (defaultAlignment - size%defaultAlignment) % defaultAlignment
}

// describe makes everything before the data.
func describe(metadata []Pair, tensors []Output) ([]byte, error) {
	// Magic, version, counts.
	out := append([]byte(magic), make([]byte, 4)...)
	le.PutUint32(out[4:], version)
	out = le.AppendUint64(out, uint64(len(tensors)))
	out = le.AppendUint64(out, uint64(len(metadata)))
	// Pairs of metadata; readers take the first of two equal keys, or the last.
	seen := map[string]bool{}
	for _, p := range metadata {
		if seen[p.Key] {
			return nil, fmt.Errorf("gguf: internal error: two values are given for metadata key %q; report this, and include the command line", p.Key)
		}
		seen[p.Key] = true
		out = appendText(out, p.Key)
		var err error
		if out, err = appendValue(out, p); err != nil {
			return nil, err
		}
	}
	// Tensors, with the offset of each in the data: padded, in the same order.
	offset := int64(0)
	for i := range tensors {
		t := &tensors[i]
		if !t.Type.Writable() || len(t.Name) > maxName || len(t.Dims) > maxRank || t.Dims[0]%t.Type.BlockElements() != 0 {
			return nil, fmt.Errorf("gguf: internal error: tensor %q (dimensions %v, type %v) cannot be written: the type, the length of the name, the number of dimensions or the length of a row is not valid in GGUF; report this, and include the command line", t.Name, t.Dims, t.Type)
		}
		out = appendText(out, t.Name)
		out = le.AppendUint32(out, uint32(len(t.Dims)))
		for _, d := range t.Dims {
			out = le.AppendUint64(out, uint64(d))
		}
		out = le.AppendUint32(out, uint32(t.Type))
		out = le.AppendUint64(out, uint64(offset))
		size := t.rows() * t.Type.Bytes(t.Dims[0])
		offset += size + padding(size)
	}
	return append(out, make([]byte, padding(int64(len(out))))...), nil
}

func appendText(out []byte, s string) []byte {
	return append(le.AppendUint64(out, uint64(len(s))), s...)
}

// appendValue writes the type and the value of a pair.
func appendValue(out []byte, p Pair) ([]byte, error) {
	kind := func(k valueType) []byte { return le.AppendUint32(out, uint32(k)) }
	list := func(k valueType, n int) {
		out = le.AppendUint64(le.AppendUint32(kind(arrayValue), uint32(k)), uint64(n))
	}
	// Each type has its number; those of lists follow that of a list.
	switch v := p.Value.(type) {
	case string:
		return appendText(kind(stringValue), v), nil
	case bool:
		return append(kind(boolValue), truth(v)), nil
	case uint32:
		return le.AppendUint32(kind(uint32Value), v), nil
	case int32:
		return le.AppendUint32(kind(int32Value), uint32(v)), nil
	case uint64:
		return le.AppendUint64(kind(uint64Value), v), nil
	case float32:
		return le.AppendUint32(kind(float32Value), math.Float32bits(v)), nil
	case []string:
		list(stringValue, len(v))
		for _, s := range v {
			out = appendText(out, s)
		}
		return out, nil
	case []int32:
		list(int32Value, len(v))
		for _, n := range v {
			out = le.AppendUint32(out, uint32(n))
		}
		return out, nil
	case []float32:
		list(float32Value, len(v))
		for _, x := range v {
			out = le.AppendUint32(out, math.Float32bits(x))
		}
		return out, nil
	case []bool:
		list(boolValue, len(v))
		for _, b := range v {
			out = append(out, truth(b))
		}
		return out, nil
	}
	return nil, fmt.Errorf("gguf: internal error: metadata %q is a %T, which cannot be written; report this, and include the command line", p.Key, p.Value)
}

func truth(b bool) byte {
	if b {
		return 1
	}
	return 0
}
