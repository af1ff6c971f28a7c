package native

import (
	"fmt"

	"github.com/zeebo/xxh3"
)

// sums are the checksums of a part that is given front to back: of all of it
// and, where it is long, of each block. Both see a block while it is cached.
type sums struct {
	whole, block *xxh3.Hasher
	held         int64 // bytes of the block under way
	digits       []byte
	long         bool
}

func newSums(bytes int64) *sums {
	return &sums{whole: xxh3.New(), block: xxh3.New(), long: bytes > blockBytes}
}

func (s *sums) add(chunk []byte) {
	for len(chunk) > 0 {
		part := chunk[:min(int64(len(chunk)), blockBytes-s.held)]
		chunk = chunk[len(part):]
		_, _ = s.whole.Write(part) // never fails
		if !s.long {
			continue
		}
		_, _ = s.block.Write(part) // never fails
		if s.held += int64(len(part)); s.held == blockBytes {
			s.endBlock()
		}
	}
}

func (s *sums) endBlock() {
	s.digits = fmt.Appendf(s.digits, "%016x", s.block.Sum64())
	s.block.Reset()
	s.held = 0
}

// finish gives the digits of the blocks; empty for a part of one.
func (s *sums) finish() string {
	if s.held > 0 {
		s.endBlock()
	}
	return string(s.digits)
}
