package inference

import (
	"crypto/sha256"
	"encoding/binary"

	"monotron/csrc/device"
)

// prefix names what a full block holds: all tokens from the start of its sequence to its end.
type prefix [sha256.Size]byte

// after is the prefix that continues from p by the tokens of one block.
func (p prefix) after(tokens []int32) prefix {
	h := sha256.New()
	h.Write(p[:])
	for _, id := range tokens {
		h.Write(binary.LittleEndian.AppendUint32(nil, uint32(id)))
	}
	return prefix(h.Sum(nil))
}

// blockPool counts who uses which block of keys and values. A block nobody uses keeps what
// it holds until it is needed: it lies in a list, and the one that was freed first goes first.
type blockPool struct {
	blocks []block
	free   int              // in the list
	known  map[prefix]int32 // full blocks by what they hold
}

// block is a ring's member while nobody uses it; the last of blocks is the ring's anchor.
type block struct {
	users      int
	holds      prefix
	known      bool  // in the pool's map
	edition    int32 // of the weights that computed it, where known
	prev, next int32
}

func newBlockPool(n int) *blockPool {
	p := &blockPool{blocks: make([]block, n+1), known: map[prefix]int32{}}
	p.blocks[n] = block{prev: int32(n), next: int32(n)}
	for i := range n {
		p.put(int32(i), p.anchor())
	}
	return p
}

func (p *blockPool) anchor() int32 { return int32(len(p.blocks) - 1) }

// put lays block i before another in the list.
func (p *blockPool) put(i, before int32) {
	b := &p.blocks[i]
	b.next, b.prev = before, p.blocks[before].prev
	p.blocks[b.prev].next, p.blocks[before].prev = i, i
	p.free++
}

func (p *blockPool) remove(i int32) {
	b := p.blocks[i]
	p.blocks[b.prev].next, p.blocks[b.next].prev = b.next, b.prev
	p.free--
}

// take gives a block to write to; there must be a free one.
func (p *blockPool) take() int32 {
	i := p.blocks[p.anchor()].next
	p.remove(i)
	b := &p.blocks[i]
	if b.known {
		delete(p.known, b.holds)
	}
	b.users, b.known = 1, false
	return i
}

// share is the block that holds a prefix's last tokens, for one more user; false: there is none.
func (p *blockPool) share(holds prefix) (int32, bool) {
	i, found := p.known[holds]
	if !found {
		return 0, false
	}
	if p.blocks[i].users == 0 {
		p.remove(i)
	}
	p.blocks[i].users++
	return i, true
}

// join is one more user of the blocks of a table that is in use.
func (p *blockPool) join(table []int32) {
	for _, i := range table {
		p.blocks[i].users++
	}
}

// shared reports whether a block has more users than one.
func (p *blockPool) shared(i int32) bool { return p.blocks[i].users > 1 }

// full records the contents of a block. A second block with the same contents stays unknown.
func (p *blockPool) full(i int32, holds prefix, edition int32) {
	if _, found := p.known[holds]; !found {
		p.known[holds] = i
		p.blocks[i].holds, p.blocks[i].known, p.blocks[i].edition = holds, true, edition
	}
}

// forget ends the sharing of blocks computed with weights that new texts do not get.
func (p *blockPool) forget(edition int32) {
	for i := range p.blocks[:p.anchor()] {
		b := &p.blocks[i]
		if !b.known || b.edition != edition {
			continue
		}
		delete(p.known, b.holds)
		b.known = false
		if b.users == 0 {
			p.remove(int32(i))
			p.put(int32(i), p.blocks[p.anchor()].next)
		}
	}
}

// release ends a sequence's use of its blocks. Its last are the first to be taken again: the
// beginnings of texts are what others share. What holds nothing known goes before all others.
func (p *blockPool) release(table []int32) {
	for at := len(table) - 1; at >= 0; at-- {
		b := &p.blocks[table[at]]
		if b.users--; b.users > 0 {
			continue
		}
		if b.known {
			p.put(table[at], p.anchor())
		} else {
			p.put(table[at], p.blocks[p.anchor()].next)
		}
	}
}

// blocksFor is how many blocks hold so many positions.
func blocksFor(positions int) int { return (positions + device.PagedBlock - 1) / device.PagedBlock }
