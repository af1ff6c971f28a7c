package memory

import (
	"os"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint"
	"monotron/mpu"
	"monotron/mpu/comm"
)

// Segments is how many files of memory a rank has: two for its own shard, two for a copy of
// another's.
const Segments = 4

// generations of checkpoints are kept: one stays complete while the other is written.
const generations = 2

// Store is one rank's memory checkpoints.
type Store struct {
	device *device.Device
	world  *comm.Group
	jump   int // the shard is copied to the rank so far behind; 0: nowhere

	bytes  int64  // of the tensors
	layout uint64 // what they are

	own, kept     [generations]*segment // nil: of a dry run
	out, in       device.Tensor         // i64, for what travels
	going, coming []byte
	next          int // generation that the next save writes
}

// New is the store of a rank that has such tensors, alike in every process that the rank has.
// files are its segments; nil: of a dry run, which only takes the device's memory.
func New(d *device.Device, world *comm.Group, jump int, tensors []mpu.Stored, files []*os.File) (*Store, error) {
	s := &Store{device: d, world: world, jump: jump, bytes: Bytes(tensors)}
	var err error
	if s.layout, err = layoutOf(tensors); err != nil {
		return nil, err
	}
	if jump > 0 {
		n := words(travelBytes)
		s.out, s.in = d.Arena.Alloc(device.Communication, device.I64, n), d.Arena.Alloc(device.Communication, device.I64, n)
		s.going, s.coming = make([]byte, 8*n), make([]byte, 8*n)
	}
	if files == nil {
		return s, nil
	}
	if len(files) != Segments {
		return nil, exitcode.Errorf(exitcode.Internal, "internal error: memory checkpoints: found %d segments, expected %d; report this, and include the command line", len(files), Segments)
	}
	for g := range generations {
		if s.own[g], err = open(files[g]); err != nil {
			return nil, err
		}
		if s.kept[g], err = open(files[generations+g]); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Close ends the mappings; the segments stay with who holds them. A nil store has none.
func (s *Store) Close() {
	if s == nil {
		return
	}
	for g := range generations {
		for _, seg := range []*segment{s.own[g], s.kept[g]} {
			if seg != nil {
				seg.close()
			}
		}
	}
}

// Shard is the size of the rank's shard.
func (s *Store) Shard() int64 { return s.bytes }

// KeptBytes is the host memory that a rank's segments take, by the size of its own shard and that of
// the one whose copies it has.
func KeptBytes(own, kept int64) int64 { return generations * (own + kept) }

// keeper has the copy of a rank's shard, owner the shard that a rank has a copy of.
func (s *Store) keeper(rank int) int { return (rank + s.jump) % s.world.Size() }
func (s *Store) owner(rank int) int {
	return (rank + s.world.Size() - s.jump%s.world.Size()) % s.world.Size()
}

// Save keeps the tensors, those of New, as they are now, and the state. All ranks call it together; tag is alike on
// them, and differs between the processes that a rank has one after the other. An error, which
// all ranks get, leaves the newest checkpoint complete.
func (s *Store) Save(state checkpoint.State, tensors []mpu.Stored, tag uint64) error {
	own := s.own[s.next]
	err := own.begin(headerBytes + s.bytes)
	if err == nil {
		err = gather(s.device, own.bytes[headerBytes:headerBytes+s.bytes], tensors)
	}
	if err == nil {
		err = own.finish(s.bytes, &about{Rank: s.world.Rank(), World: s.world.Size(), Layout: s.layout, State: state}, tag)
	}
	lengths, err := s.agree(err, own.length())
	if err != nil {
		return err
	}
	if s.jump > 0 {
		if err := s.copyOn(lengths); err != nil {
			return err
		}
	}
	s.next = (s.next + 1) % generations
	return nil
}

// copyOn sends the shard to its keeper, and takes that of this rank's owner.
func (s *Store) copyOn(lengths []int64) error {
	own, kept, from := s.own[s.next], s.kept[s.next], s.owner(s.world.Rank())
	if _, err := s.agree(kept.begin(lengths[from]), 0); err != nil {
		return err
	}
	return s.pass(s.keeper(s.world.Rank()), own, from, kept, lengths[from])
}
