// Package fingerprint makes short sums of tensors that do not depend on how a tensor is
// divided: each element adds a product of its bits and a factor made from the tensor's name
// and the element's index. Ranks add up what they hold in any order.
//
// Two tensors that differ in one element always have different sums. It detects mistakes; it
// does not protect against a person who wants two tensors of one sum.
package fingerprint

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash/fnv"
)

// Sum is 128 bits, two sums with different factors. The zero value is the sum of nothing.
type Sum [2]uint64

// Key makes the factors of one tensor different from those of another.
type Key uint64

// KeyOf makes a key of a name, a data type and the shape of the complete tensor.
func KeyOf(name, dtype string, shape []int64) Key {
	h := fnv.New64a()
	h.Write([]byte(name))
	h.Write([]byte{0})
	h.Write([]byte(dtype))
	for _, n := range shape {
		_ = binary.Write(h, binary.LittleEndian, n)
	}
	return Key(h.Sum64())
}

// Add adds little-endian elements of 1, 2, 4 or 8 bytes: of the complete tensor those from
// index at on.
func (s *Sum) Add(key Key, data []byte, size int, at int64) {
	if size == 8 {
		size, at = 4, 2*at
	}
	n := int64(len(data) / size)
	for n > 0 {
		block := at >> 32 // factors are made from 32 bits of the index
		m := min(n, (block+1)<<32-at)
		own := mix(uint64(key) + uint64(block)*0x9e3779b97f4a7c15)
		add(s, data[:m*int64(size)], size, uint32(at), [2]uint32{uint32(own), uint32(own >> 32)})
		data, at, n = data[m*int64(size):], at+m, n-m
	}
}

// Plus adds another sum.
func (s *Sum) Plus(other Sum) {
	s[0] += other[0]
	s[1] += other[1]
}

// String is 32 hexadecimal digits.
func (s Sum) String() string { return hex.EncodeToString(s.bytes()) }

// Hash is the SHA-256 of the sum, 64 hexadecimal digits.
func (s Sum) Hash() string {
	h := sha256.Sum256(s.bytes())
	return hex.EncodeToString(h[:])
}

func (s Sum) bytes() []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, s[0]), s[1])
}

// mix is the finalizer of SplitMix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// factor is an odd number made from an index and one half of a key (MurmurHash3's finalizer).
func factor(at, key uint32) uint64 {
	h := at*0x9e3779b1 + key
	h = (h ^ h>>16) * 0x85ebca6b
	h = (h ^ h>>13) * 0xc2b2ae35
	return uint64(h | 1)
}

// addGo is add without C: the definition of the sum. An element counts one more than its bits,
// so that zeros count too.
func addGo(s *Sum, data []byte, size int, at uint32, keys [2]uint32) {
	for i := 0; i < len(data); i += size {
		var bits uint32
		switch size {
		case 1:
			bits = uint32(data[i])
		case 2:
			bits = uint32(binary.LittleEndian.Uint16(data[i:]))
		default:
			bits = binary.LittleEndian.Uint32(data[i:])
		}
		s[0] += (uint64(bits) + 1) * factor(at, keys[0])
		s[1] += (uint64(bits) + 1) * factor(at, keys[1])
		at++
	}
}
