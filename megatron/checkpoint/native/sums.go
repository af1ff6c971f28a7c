package native

import (
	"fmt"

	"github.com/zeebo/xxh3"
)

// sums are the checksums of a part that is given front to back: of all of it
// and, where it is long, of each block. Both see a block while it is cached.
type sums struct {
	full, block *xxh3.Hasher
	kept        int64 // bytes of the block under way
	digits      []byte
	long        bool
}

func newSums(bytes int64) *sums {
	return &sums{full: xxh3.New(), block: xxh3.New(), long: bytes > blockBytes}
}

func (s *sums) add(chunk []byte) {
	for len(chunk) > 0 {
		part := chunk[:min(int64(len(chunk)), blockBytes-s.kept)]
		chunk = chunk[len(part):]
		_, _ = s.full.Write(part) // never fails
		if !s.long {
			continue
		}
		_, _ = s.block.Write(part) // never fails
		if s.kept += int64(len(part)); s.kept == blockBytes {
			s.endBlock()
		}
	}
}

func (s *sums) endBlock() {
	s.digits = fmt.Appendf(s.digits, "%016x", s.block.Sum64())
	s.block.Reset()
	s.kept = 0
}

// finish gives the digits of the blocks; empty for a part of one.
func (s *sums) finish() string {
	if s.kept > 0 {
		s.endBlock()
	}
	return string(s.digits)
}
