package native

import (
	"encoding/hex"
	"fmt"

	"github.com/zeebo/xxh3"

	"monotron/csrc/device"
	"monotron/mpu"
)

const (
	manifestName    = "manifest.json"
	manifestFormat  = "monotron checkpoint"
	manifestVersion = 1
)

// Manifest says what a checkpoint holds and where.
type Manifest struct {
	Format  string   `json:"format"`
	Version int      `json:"version"`
	State   State    `json:"state"`
	Files   []File   `json:"files"`
	Tensors []Tensor `json:"tensors"`

	Tokenizer []Kept `json:"tokenizer,omitempty"` // its files, in the folder of that name
}

// Kept is a small file that a checkpoint keeps as it was.
type Kept struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
	XXH3  string `json:"xxh3"`
}

// File is a safetensors file of the folder.
type File struct {
	Name        string `json:"name"`
	Bytes       int64  `json:"bytes"`
	HeaderBytes int64  `json:"header_bytes"` // everything before the data
	HeaderXXH3  string `json:"header_xxh3"`
}

// Tensor is a global tensor; its pieces tile it.
type Tensor struct {
	Name   string  `json:"name"`
	DType  string  `json:"dtype"` // as safetensors spells it
	Shape  []int64 `json:"shape"`
	Pieces []Piece `json:"pieces"`
}

// Piece is a box of a tensor, row-major at Offset of a file.
type Piece struct {
	From   []int64 `json:"from"`
	Size   []int64 `json:"size"`
	File   int     `json:"file"` // index in Files
	Offset int64   `json:"offset"`
	XXH3   string  `json:"xxh3"` // 128 bits of the piece's bytes

	// Blocks are 64 bits of every blockBytes of a longer piece, one behind the other,
	// so that a part of it can be read and checked alone. Earlier versions wrote none.
	Blocks string `json:"blocks,omitempty"`
}

const (
	blockBytes  = 256 << 10
	blockDigits = 16
)

// blocksOf is the Blocks of a piece of so many bytes, in hexadecimal digits.
func blocksOf(bytes int64) int64 { return (bytes + blockBytes - 1) / blockBytes * blockDigits }

// blockSums appends the sums of the blocks that chunk consists of.
func blockSums(to []byte, chunk []byte) []byte {
	for at := 0; at < len(chunk); at += blockBytes {
		to = fmt.Appendf(to, "%016x", xxh3.Hash(chunk[at:min(len(chunk), at+blockBytes)]))
	}
	return to
}

func (p Piece) box() mpu.Piece { return mpu.Piece{From: p.From, Size: p.Size} }

// Bytes is the size of a piece of t in its file.
func (t *Tensor) Bytes(p Piece) int64 { return p.box().Len() * dtypeOf[t.DType].Size() }

// dtypes by safetensors' names, and back.
var dtypeOf = map[string]device.DType{"F32": device.F32, "BF16": device.BF16, "F16": device.F16, "F64": device.F64,
	"I32": device.I32, "I64": device.I64, "U16": device.U16, "U8": device.U8}

var dtypeName = func() map[device.DType]string {
	m := map[device.DType]string{}
	for name, d := range dtypeOf {
		m[d] = name
	}
	return m
}()

// sum is the checksum of bytes as the manifest writes it.
func sum(b []byte) string { return hexSum(xxh3.Hash128(b)) }

func hexSum(h xxh3.Uint128) string {
	b := h.Bytes()
	return hex.EncodeToString(b[:])
}

const sumDigits = 32

// merge makes one manifest of the ranks' own; the state is the first's.
func merge(parts []*Manifest) (*Manifest, error) {
	m := &Manifest{Format: manifestFormat, Version: manifestVersion, State: parts[0].State}
	index := map[string]int{}
	for _, part := range parts {
		shift := len(m.Files)
		m.Files = append(m.Files, part.Files...)
		for _, t := range part.Tensors {
			at, ok := index[t.Name]
			if !ok {
				at = len(m.Tensors)
				index[t.Name] = at
				m.Tensors = append(m.Tensors, Tensor{Name: t.Name, DType: t.DType, Shape: t.Shape})
			}
			all := &m.Tensors[at]
			if all.DType != t.DType || !equal(all.Shape, t.Shape) {
				return nil, fmt.Errorf("tensor %q is %s%v on one rank, but %s%v on another", t.Name, all.DType, all.Shape, t.DType, t.Shape)
			}
			for _, p := range t.Pieces {
				p.File += shift
				all.Pieces = append(all.Pieces, p)
			}
		}
	}
	return m, m.check()
}
