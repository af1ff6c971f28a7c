package memory

import (
	"fmt"
	"slices"

	"monotron/internal/exitcode"
	"monotron/internal/logging"
	"monotron/megatron/checkpoint"
	"monotron/mpu"
)

// Found is a checkpoint of which every rank's shard is there.
type Found struct {
	Iteration int64
	Lost      []int // ranks whose own segment does not have it: their keepers do
	Thin      bool  // some shard is in one segment where a save puts it into two

	generation int
	lengths    []int64 // of the shards in their keepers' segments, by keeper
}

// entry is what a rank says of one segment.
type entry struct{ iteration, tag, length int64 }

const entryNumbers = 3

// Find is the newest complete checkpoint; nil: there is none, and lacks says of which one what
// is missing ("": there has never been one). All ranks call it together, and find the same.
func (s *Store) Find() (found *Found, lacks string, err error) {
	// What every rank has.
	rank := s.world.Rank()
	var own []int64
	for g := range generations {
		own = append(own, s.entryOf(s.own[g], rank, true)...)
	}
	for g := range generations {
		own = append(own, s.entryOf(s.kept[g], s.owner(rank), s.jump > 0)...)
	}
	all, err := s.numbers(own...)
	if err != nil {
		return nil, "", err
	}
	// The newest of which all is there; of two of an iteration the one with more copies.
	newest := int64(-1)
	for g := range generations {
		f, missing, at := s.complete(all, g)
		switch {
		case f != nil && (found == nil || f.Iteration > found.Iteration || f.Iteration == found.Iteration && found.Thin):
			found = f
		case f == nil && at > newest:
			newest, lacks = at, fmt.Sprintf("iteration %d lacks the shards of %s", at, ranksOf(missing))
		}
	}
	if found != nil {
		return found, "", nil
	}
	return nil, lacks, nil
}

// entryOf is what a segment has of a rank's shard: the iteration is -1 where that is nothing.
func (s *Store) entryOf(seg *segment, rank int, used bool) []int64 {
	none := []int64{-1, 0, 0}
	if !used {
		return none
	}
	data, a, err := seg.content()
	switch {
	case err != nil || a.Rank != rank || a.World != s.world.Size():
		return none
	case rank == s.world.Rank() && (a.Layout != s.layout || int64(len(data)) != s.bytes):
		return none
	}
	return []int64{a.State.Iteration, int64(seg.tag()), seg.length()}
}

// complete is the checkpoint of a generation. Else it is nil, with the newest iteration there
// and the ranks that lack it.
func (s *Store) complete(all []int64, generation int) (f *Found, missing []int, at int64) {
	said := func(rank, segment int) entry {
		row := all[(rank*Segments+segment)*entryNumbers:]
		return entry{row[0], row[1], row[2]}
	}
	// The newest that any rank has.
	newest := entry{iteration: -1}
	for rank := range s.world.Size() {
		for _, e := range []entry{said(rank, generation), said(rank, generations+generation)} {
			if e.iteration > newest.iteration {
				newest = e
			}
		}
	}
	if newest.iteration < 0 {
		return nil, nil, -1
	}
	// Who has that one.
	same := func(e entry) bool { return e.iteration == newest.iteration && e.tag == newest.tag }
	f = &Found{Iteration: newest.iteration, generation: generation}
	for rank := range s.world.Size() {
		own, kept := said(rank, generation), said(s.keeper(rank), generations+generation)
		f.lengths = append(f.lengths, said(rank, generations+generation).length)
		switch copied := s.jump > 0 && same(kept); {
		case same(own):
			f.Thin = f.Thin || s.jump > 0 && !copied
		case copied:
			f.Lost, f.Thin = append(f.Lost, rank), true
		default:
			missing = append(missing, rank)
		}
	}
	if missing != nil {
		return nil, missing, newest.iteration
	}
	return f, nil, newest.iteration
}

// ranksOf names some ranks.
func ranksOf(ranks []int) string {
	const shown = 8
	text := fmt.Sprint(ranks[:min(shown, len(ranks))])
	if n := len(ranks); n > shown {
		return fmt.Sprintf("%s, the first of them %s", logging.Count(n, "rank"), text)
	}
	return "ranks " + text
}

// Load brings the shards of a checkpoint to who has lost them, and fills the tensors, those of
// New. All ranks call it together.
func (s *Store) Load(f *Found, tensors []mpu.Stored) (state checkpoint.State, err error) {
	rank, own := s.world.Rank(), s.own[f.generation]
	var out, in *segment
	if s.jump > 0 && slices.Contains(f.Lost, s.owner(rank)) {
		out = s.kept[f.generation]
	}
	length := f.lengths[s.keeper(rank)]
	if slices.Contains(f.Lost, rank) {
		in, err = own, own.begin(length)
	}
	if _, err := s.agree(err, 0); err != nil {
		return state, err
	}
	if err := s.pass(s.owner(rank), out, s.keeper(rank), in, length); err != nil {
		return state, err
	}
	data, a, err := own.content()
	if err == nil && (a.Layout != s.layout || int64(len(data)) != s.bytes) {
		err = fmt.Errorf("the shard belongs to a different layout")
	}
	if err != nil {
		return state, exitcode.Errorf(exitcode.Internal, "memory checkpoint of iteration %d: the shard of rank %d: %w", f.Iteration, rank, err)
	}
	s.next = (f.generation + 1) % generations
	return a.State, scatter(s.device, data, tensors)
}
