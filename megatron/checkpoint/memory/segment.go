package memory

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"

	"github.com/zeebo/xxh3"

	"monotron/internal/exitcode"
	"monotron/internal/system"
	"monotron/megatron/checkpoint"
)

// A segment is a header of headerBytes, the bytes of the tensors, and about as JSON:
//
//	 0  magic; 0: nothing that counts
//	 8  bytes of tensors
//	16  bytes of about
//	24  iteration
//	32  tag of the run that has saved it
//	40  XXH3 of tensors, 128 bits
//	56  XXH3 of about, 64 bits
const (
	headerBytes = 64
	magic       = 0x31504b434d454d4d // "MMEMCKP1"
)

// about is what a shard says in addition to its tensors.
type about struct {
	Rank, World int
	Layout      uint64 // of the tensors
	State       checkpoint.State
}

// segment is memory for one shard. Another process also keeps its file open.
type segment struct {
	file  *os.File
	bytes []byte // mapped
}

// open maps what is there.
func open(f *os.File) (*segment, error) {
	s := &segment{file: f}
	st, err := f.Stat()
	if err != nil {
		return nil, exitcode.With(exitcode.IO, err)
	}
	if st.Size() < headerBytes {
		return s, nil
	}
	return s, s.mapped(st.Size())
}

// reserve makes the segment as long as n bytes.
func (s *segment) reserve(n int64) error {
	if int64(len(s.bytes)) >= n {
		return nil
	}
	return s.mapped(n)
}

func (s *segment) mapped(n int64) error {
	bytes, err := system.MapShared(s.file, n)
	if err != nil {
		return exitcode.Errorf(exitcode.IO, "%d bytes of host memory for a memory checkpoint cannot be allocated: %w; leave out --memory-checkpoint-interval or --replication-jump, or use fewer ranks on this host", n, err)
	}
	s.close()
	s.bytes = bytes
	return nil
}

func (s *segment) close() {
	if s.bytes != nil {
		system.UnmapShared(s.bytes)
		s.bytes = nil
	}
}

func (s *segment) word(at int) uint64       { return binary.LittleEndian.Uint64(s.bytes[at:]) }
func (s *segment) set(at int, value uint64) { binary.LittleEndian.PutUint64(s.bytes[at:], value) }

// begin takes away what counts, for n bytes that will come.
func (s *segment) begin(n int64) error {
	if len(s.bytes) >= headerBytes {
		s.set(0, 0)
	}
	if err := s.reserve(n); err != nil {
		return err
	}
	s.set(0, 0)
	return nil
}

// finish writes about behind `data` bytes of tensors and lets the segment count.
func (s *segment) finish(data int64, a *about, tag uint64) error {
	text, err := json.Marshal(a)
	if err != nil {
		return exitcode.With(exitcode.Internal, err)
	}
	if err := s.reserve(headerBytes + data + int64(len(text))); err != nil {
		return err
	}
	copy(s.bytes[headerBytes+data:], text)
	sum := xxh3.Hash128(s.bytes[headerBytes : headerBytes+data])
	for i, value := range []uint64{uint64(data), uint64(len(text)), uint64(a.State.Iteration), tag, sum.Lo, sum.Hi, xxh3.Hash(text)} {
		s.set(8*(i+1), value)
	}
	s.set(0, magic)
	return nil
}

// length is that of the header and what follows, a multiple of 8; 0: nothing is there that
// could count.
func (s *segment) length() int64 {
	if len(s.bytes) < headerBytes {
		return 0
	}
	data, text := s.word(8), s.word(16)
	most := uint64(len(s.bytes) - headerBytes)
	if s.word(0) != magic || data > most || text > most-data {
		return 0
	}
	return headerBytes + int64(data) + int64(text)
}

// content is what the segment has; an error says why it does not count.
func (s *segment) content() (data []byte, a *about, err error) {
	n := s.length()
	if n == 0 {
		return nil, nil, fmt.Errorf("the memory is empty, or its writer did not finish")
	}
	data = s.bytes[headerBytes : headerBytes+s.word(8)]
	text := s.bytes[headerBytes+len(data) : n]
	sum := xxh3.Hash128(data)
	if sum.Lo != s.word(40) || sum.Hi != s.word(48) || xxh3.Hash(text) != s.word(56) {
		return nil, nil, fmt.Errorf("the checksum of the shard is wrong")
	}
	a = &about{}
	if err := json.Unmarshal(text, a); err != nil {
		return nil, nil, err
	}
	if a.State.Iteration != int64(s.word(24)) {
		return nil, nil, fmt.Errorf("the shard has two different iteration numbers")
	}
	return data, a, nil
}

func (s *segment) tag() uint64 { return s.word(32) }

// Iteration is that of the shard in a segment's file; -1: nothing there counts. It reads the
// header alone.
func Iteration(f *os.File) int64 {
	var header [headerBytes]byte
	if _, err := f.ReadAt(header[:], 0); err != nil || binary.LittleEndian.Uint64(header[:]) != magic {
		return -1
	}
	return int64(binary.LittleEndian.Uint64(header[24:]))
}
