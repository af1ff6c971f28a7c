package inference

import (
	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/mpu/comm"
)

// What rank 0 has the others do next, the first word of an order.
const (
	orderEnd    int32 = iota // nothing follows
	orderSame                // have the weights of an iteration, as rank 0
	orderBegin               // make blocks: how many
	orderNone                // nothing now; who listens sees that rank 0 is there
	orderPass                // run a batch
	orderReload              // load an iteration into the edition that nobody uses
)

// order is what all ranks do at once.
type order struct {
	kind   int32
	number int64 // of blocks, or an iteration
	batch  batch
}

// orders are how rank 0 has the other ranks of a model follow it, whatever carries the
// bytes: a head of orderHead words, then the words of the batch.
type orders struct {
	world  *comm.Group
	device *device.Device
}

const orderHead = 8

// alone reports whether nobody follows.
func (o *orders) alone() bool { return o.world == nil || o.world.Size() == 1 }

// give sends an order to all other ranks.
func (o *orders) give(x *order) error {
	if o.alone() {
		return nil
	}
	b, tables := &x.batch, 0
	for _, t := range b.tables {
		tables += len(t)
	}
	head := []int32{x.kind, int32(x.number >> 32), int32(x.number), b.edition, int32(len(b.ids)), int32(len(b.tables)), int32(tables), int32(len(b.wanted))}
	if _, err := o.carry(head); err != nil || x.kind != orderPass {
		return err
	}
	words := append(append(append([]int32(nil), b.ids...), b.positions...), b.sequence...)
	words = append(words, b.wanted...)
	for _, t := range b.tables {
		words = append(words, int32(len(t)))
	}
	for _, t := range b.tables {
		words = append(words, t...)
	}
	_, err := o.carry(words)
	return err
}

// hear waits for what rank 0 says next.
func (o *orders) hear() (x order, err error) {
	head, err := o.carry(make([]int32, orderHead))
	if err != nil {
		return x, err
	}
	x.kind, x.number = head[0], int64(head[1])<<32|int64(uint32(head[2]))
	if x.kind != orderPass {
		return x, nil
	}
	rows, tables, blocks, wanted := int(head[4]), int(head[5]), int(head[6]), int(head[7])
	words, err := o.carry(make([]int32, 3*rows+wanted+tables+blocks))
	if err != nil {
		return x, err
	}
	take := func(n int) (part []int32) {
		part, words = words[:n], words[n:]
		return part
	}
	b := &x.batch
	b.edition, b.ids, b.positions, b.sequence, b.wanted = head[3], take(rows), take(rows), take(rows), take(wanted)
	for _, n := range take(tables) {
		b.tables = append(b.tables, take(int(n)))
	}
	return x, nil
}

// carry gives everybody rank 0's words.
func (o *orders) carry(words []int32) ([]int32, error) {
	s := o.device.Arena.Scope(device.Communication)
	defer s.Release()
	t := s.Alloc(device.I32, int64(len(words)))
	device.WriteSlice(o.device, t, words)
	if err := o.world.Broadcast(t, 0).Wait(); err != nil {
		return nil, err
	}
	words = device.ReadSlice[int32](o.device, t)
	return words, o.device.Sync()
}

// agree makes what one rank refuses refused by all: mine is this rank's reason, or nil.
func (o *orders) agree(mine error) (refused, err error) {
	if o.alone() {
		return mine, nil
	}
	text := ""
	if mine != nil {
		text = mine.Error()
	}
	all, err := comm.Words(o.world, o.device, text)
	if err != nil {
		return nil, err
	}
	for rank, text := range all {
		if mine == nil && text != "" {
			mine = exitcode.Errorf(exitcode.BadData, "rank %d: %s", rank, text)
		}
	}
	return mine, nil
}
