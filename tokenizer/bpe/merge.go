package bpe

import (
	"math/bits"
	"sync"
)

// Merges maps a pair of neighbouring tokens to the rank of their merge and the
// token it makes: open addressing, since it is asked for every pair of bytes.
type Merges struct {
	slots []mergeSlot
	shift int
	count int
}

type mergeSlot struct {
	pair uint64 // left+1 << 32 | right; 0 is an empty slot
	rank int32
	id   int32
}

// NewMerges has space for n pairs.
func NewMerges(n int) *Merges {
	log := bits.Len(uint(2 * n))
	return &Merges{slots: make([]mergeSlot, 1<<log), shift: 64 - log}
}

func pairKey(left, right int32) uint64 { return uint64(left+1)<<32 | uint64(uint32(right)) }

// Add enters a merge; the first rank of a pair stays.
func (m *Merges) Add(left, right, rank, id int32) {
	s := m.slot(pairKey(left, right))
	if s.pair == 0 {
		*s = mergeSlot{pairKey(left, right), rank, id}
		m.count++
	}
}

// Set enters a merge; the last rank of a pair stays.
func (m *Merges) Set(left, right, rank, id int32) {
	s := m.slot(pairKey(left, right))
	if s.pair == 0 {
		m.count++
	}
	*s = mergeSlot{pairKey(left, right), rank, id}
}

// Len counts the merges.
func (m *Merges) Len() int { return m.count }

func (m *Merges) slot(key uint64) *mergeSlot {
	mask := len(m.slots) - 1
	for i := int(key * 0x9e3779b97f4a7c15 >> m.shift); ; i = (i + 1) & mask {
		if s := &m.slots[i&mask]; s.pair == key || s.pair == 0 {
			return s
		}
	}
}

// unmerged is the rank of a pair that has no merge.
const unmerged = int32(1<<31 - 1)

// Find is the rank of a pair and the token it makes; unmerged, -1 where it has no merge.
func (m *Merges) Find(left, right int32) (rank, id int32) {
	if s := m.slot(pairKey(left, right)); s.pair != 0 {
		return s.rank, s.id
	}
	return unmerged, -1
}

// Part is one token of a piece that is being merged, with the merge it has
// with the part after it.
type Part struct {
	ID         int32
	rank, into int32 // of the pair (this, next)
	prev, next int32 // positions in the list; used by mergeLong only
}

// longPiece is where the quadratic loop gives way to the queue.
const longPiece = 96

// Merge joins the parts of a piece, lowest rank first and leftmost among
// equals, until no pair has a merge, and adds the ids left to dst.
func (m *Merges) Merge(dst []int32, parts []Part) []int32 {
	if len(parts) == 0 {
		return dst
	}
	if len(parts) > longPiece {
		return m.mergeLong(dst, parts)
	}
	// The rank of each neighbouring pair.
	for i := range parts[:len(parts)-1] {
		parts[i].rank, parts[i].into = m.Find(parts[i].ID, parts[i+1].ID)
	}
	// The best pair becomes one part; its two new pairs are ranked.
	for n := len(parts); n > 1; n-- {
		best, rank := -1, unmerged
		for i := range parts[:n-1] {
			if parts[i].rank < rank {
				best, rank = i, parts[i].rank
			}
		}
		if best < 0 {
			break
		}
		parts[best].ID = parts[best].into
		copy(parts[best+1:], parts[best+2:])
		parts = parts[:n-1]
		if best+1 < len(parts) {
			parts[best].rank, parts[best].into = m.Find(parts[best].ID, parts[best+1].ID)
		}
		if best > 0 {
			parts[best-1].rank, parts[best-1].into = m.Find(parts[best-1].ID, parts[best].ID)
		}
	}
	for i := range parts {
		dst = append(dst, parts[i].ID)
	}
	return dst
}

// candidate is a possible merge in mergeLong's queue. Order: rank, then position.
type candidate struct {
	rank, at int32
	id, with int32 // the two tokens it was found for; stale when they changed
}

func (a candidate) before(b candidate) bool {
	return a.rank < b.rank || a.rank == b.rank && a.at < b.at
}

// queues are mergeLong's, for use again.
var queues = sync.Pool{New: func() any { return new([]candidate) }}

// mergeLong does what merge does in n log n steps: a linked list of parts and a
// heap of candidates, stale ones dropped when they come up.
func (m *Merges) mergeLong(dst []int32, parts []Part) []int32 {
	queue := queues.Get().(*[]candidate)
	heap := (*queue)[:0]
	defer func() {
		*queue = heap
		queues.Put(queue)
	}()
	// A pair is offered with the ids that it has now: when it comes up and they have changed, it is stale.
	offer := func(at int32) {
		next := parts[at].next
		if next < 0 {
			return
		}
		if rank, _ := m.Find(parts[at].ID, parts[next].ID); rank != unmerged {
			heap = push(heap, candidate{rank, at, parts[at].ID, parts[next].ID})
		}
	}
	// The list, and every pair of it.
	for i := range parts {
		parts[i].prev, parts[i].next = int32(i-1), int32(i+1)
	}
	parts[len(parts)-1].next = -1
	for i := range parts {
		offer(int32(i))
	}
	// The best pair becomes one part; its two new pairs are offered.
	for len(heap) > 0 {
		var c candidate
		c, heap = pop(heap)
		p := &parts[c.at]
		if p.ID != c.id || p.next < 0 || parts[p.next].ID != c.with {
			continue
		}
		_, p.ID = m.Find(c.id, c.with)
		gone := p.next
		p.next = parts[gone].next
		parts[gone].ID = -1
		if p.next >= 0 {
			parts[p.next].prev = c.at
		}
		offer(c.at)
		if p.prev >= 0 {
			offer(p.prev)
		}
	}
	for at := int32(0); at >= 0; at = parts[at].next {
		dst = append(dst, parts[at].ID)
	}
	return dst
}

func push(heap []candidate, c candidate) []candidate {
	heap = append(heap, c)
	i := len(heap) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !heap[i].before(heap[up]) {
			break
		}
		heap[i], heap[up] = heap[up], heap[i]
		i = up
	}
	return heap
}

func pop(heap []candidate) (candidate, []candidate) {
	top, last := heap[0], len(heap)-1
	heap[0] = heap[last]
	heap = heap[:last]
	for i := 0; ; {
		down := 2*i + 1
		if down >= last {
			break
		}
		if down+1 < last && heap[down+1].before(heap[down]) {
			down++
		}
		if !heap[down].before(heap[i]) {
			break
		}
		heap[i], heap[down] = heap[down], heap[i]
		i = down
	}
	return top, heap
}
