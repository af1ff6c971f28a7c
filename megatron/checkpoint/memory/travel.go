package memory

import (
	"errors"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/mpu/comm"
	"monotron/mpu/comm/failure"
)

// travelBytes are sent at a time, alike on all ranks.
const travelBytes = 1 << 20

// travel sends bytes to a rank while others come from one, in chunks; nil: nothing goes, nothing
// comes. Ranks that take part call it alike.
func (s *Store) travel(to int, out []byte, from int, in []byte) error {
	for len(out) > 0 || len(in) > 0 {
		n, m := min(len(out), len(s.going)), min(len(in), len(s.coming))
		var list []comm.Transfer
		if n > 0 {
			copy(s.going, out[:n])
			list = append(list, comm.Transfer{Peer: to, Send: true, T: s.upload(s.out, s.going, n)})
		}
		if m > 0 {
			list = append(list, comm.Transfer{Peer: from, T: s.in.Slice(0, 0, words(m))})
		}
		if err := errors.Join(s.world.Exchange(list).Wait(), s.device.Err()); err != nil {
			return err
		}
		if m > 0 {
			s.device.Read(s.coming[:8*words(m)], s.in.Slice(0, 0, words(m)))
			copy(in[:m], s.coming)
		}
		out, in = out[n:], in[m:]
	}
	return s.device.Err()
}

// pass sends a segment to a rank while n bytes of another come from one; nil: none does. What
// has come counts from its header on, which comes last.
func (s *Store) pass(to int, out *segment, from int, in *segment, n int64) error {
	var going, coming, first []byte
	header := make([]byte, headerBytes)
	if out != nil {
		going, first = out.bytes[headerBytes:out.length()], out.bytes[:headerBytes]
	}
	if in != nil {
		coming = in.bytes[headerBytes:n]
	} else {
		header = nil
	}
	if err := s.travel(to, going, from, coming); err != nil {
		return err
	}
	if err := s.travel(to, first, from, header); err != nil || in == nil {
		return err
	}
	copy(in.bytes[8:headerBytes], header[8:])
	in.set(0, magic)
	if _, _, err := in.content(); err != nil {
		in.set(0, 0)
		return exitcode.Errorf(exitcode.Internal, "memory checkpoint: the shard that was received from the host of rank %d is damaged: %w", from, err)
	}
	return nil
}

// words is how many i64 hold n bytes.
func words(n int) int64 { return (int64(n) + 7) / 8 }

// upload puts n bytes of from, filled up to complete words, at the front of a tensor.
func (s *Store) upload(t device.Tensor, from []byte, n int) device.Tensor {
	t = t.Slice(0, 0, words(n))
	s.device.Write(t, from[:8*words(n)])
	return t
}

// numbers are those of all ranks, in rank order.
func (s *Store) numbers(own ...int64) ([]int64, error) {
	d := s.device
	in := d.Arena.Alloc(device.Communication, device.I64, int64(len(own)))
	defer d.Arena.Free(in)
	out := d.Arena.Alloc(device.Communication, device.I64, int64(len(own)*s.world.Size()))
	defer d.Arena.Free(out)
	device.WriteSlice(d, in, own)
	if err := s.world.AllGather(out, in).Wait(); err != nil {
		return nil, err
	}
	return device.ReadSlice[int64](d, out), d.Err()
}

// agree is an error on all ranks where one of them has one, and what else each has to say.
func (s *Store) agree(err error, own int64) ([]int64, error) {
	failed := int64(0)
	if err != nil {
		failed = 1
	}
	all, lost := s.numbers(failed, own)
	if err == nil {
		err = lost
	}
	if err != nil {
		return nil, err
	}
	said := make([]int64, s.world.Size())
	for rank := range said {
		if said[rank] = all[2*rank+1]; all[2*rank] != 0 {
			return nil, exitcode.With(exitcode.IO, failure.Remotef("memory checkpoint: rank %d could not keep its part; read the error of that rank", rank))
		}
	}
	return said, nil
}
