package process

import (
	"slices"

	engine "monotron/csrc/comm"
	"monotron/csrc/device"
	"monotron/mpu/comm"
)

// ownSums is a group's connections for sums that Gloo makes itself, and whose turn
// it is: it makes one after the other, in the order of the calls.
type ownSums struct {
	mesh *engine.Mesh
	turn chan struct{} // closed when the last call that has one is over
}

// FastReduce leaves sums to Gloo where it knows the dtype (not bf16): their order
// is its own, so that losses differ in the last bits from those of goroutines. All
// ranks call it before they make groups. The error says why Gloo cannot be had.
func (p *World) FastReduce() error {
	if _, err := p.links.transports.gloo(); err != nil {
		return err
	}
	p.fast = true
	return nil
}

var glooTypes = map[device.DType]int{device.F32: engine.F32, device.F64: engine.F64, device.F16: engine.F16, device.I32: engine.I32, device.I64: engine.I64}

func (g *group) glooSums(dtype device.DType) bool {
	_, known := glooTypes[dtype]
	return known
}

// fastReduce lets Gloo sum x once all have said that they call the same; what they
// say at the group's first call carries the addresses of its connections. The
// caller holds the lock.
func (o *operation) fastReduce(x device.Tensor, op comm.ReduceOp) {
	g := o.group
	// The first call opens the group's connections and carries their addresses.
	first := g.own == nil
	if first {
		if err := g.openOwnSums(); err != nil {
			g.world.failLater(err)
			return
		}
	}
	s, theirs := g.own, make([][]byte, g.Size())
	var mine []byte
	if first {
		var err error
		if mine, err = s.mesh.Addresses(); err != nil {
			g.world.failLater(err)
			return
		}
	}
	// What is sent says that this rank calls the same; with the first call, where it listens.
	for _, member := range g.others() {
		if first {
			theirs[member] = make([]byte, s.mesh.AddressBytes())
			at := member
			if member > g.Rank {
				at--
			}
			o.sendTo(member, mine[at*len(theirs[member]):(at+1)*len(theirs[member])])
		} else {
			o.sendTo(member, nil)
		}
		o.recvFrom(member, theirs[member])
	}
	// Sums of a group run one after another: each waits for the one before and closes its own channel.
	turn, over := s.turn, make(chan struct{})
	s.turn = over
	// When all have answered, Gloo sums in place.
	o.then[0] = func() {
		defer close(over)
		if turn != nil {
			<-turn
		}
		err := g.world.Err()
		if err == nil && first {
			err = s.mesh.Connect(slices.Concat(theirs...))
		}
		kind := engine.Sum
		if op == comm.Max {
			kind = engine.Max
		}
		if err == nil && x.Len() > 0 {
			err = s.mesh.AllReduce(x.Data, x.Len(), glooTypes[x.DType], kind)
		}
		if err != nil {
			g.world.failLater(err)
		}
	}
}

// openOwnSums makes the group's connections known to what ends them.
func (g *group) openOwnSums() error {
	e, err := g.world.links.transports.gloo()
	if err != nil {
		return err
	}
	mesh, err := e.NewMesh(g.Rank, g.Size(), g.world.limit)
	if err == nil {
		g.own = &ownSums{mesh: mesh}
		g.world.links.transports.own(mesh)
	}
	return err
}
