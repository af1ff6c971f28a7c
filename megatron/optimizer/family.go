package optimizer

import (
	"monotron/mpu"
	"monotron/mpu/comm"
)

// Groups are the ranks that an optimizer works with; nil groups: this rank alone.
type Groups struct {
	World    *comm.Group // all ranks (topology.All)
	Families map[mpu.Family]Family
}

// Family is who has the parameters of a family, and who sums their gradients.
type Family struct {
	Data  *comm.Group // same part of the model, other samples: topology.DPCP, of experts topology.EDP
	Model *comm.Group // one copy of the family's parameters; not used where there are several families
	Cut   *comm.Group // the ranks that have parts of the same tensors: topology.TP, of experts topology.ExpertTP; only Muon asks

	// With several copies of the sharded state (--num-distributed-optimizer-instances):
	Shard  *comm.Group // the ranks of Data that share one; nil: all of Data
	Across *comm.Group // the ranks of Data with this rank's shard in each; nil: there is one
}

// sharers are the ranks among which what is sharded is cut.
func (f Family) sharers() *comm.Group {
	if f.Shard != nil {
		return f.Shard
	}
	return f.Data
}

func size(g *comm.Group) int {
	if g == nil {
		return 1
	}
	return g.Size()
}

func rank(g *comm.Group) int {
	if g == nil {
		return 0
	}
	return g.Rank()
}

// of is how a family's ranks share: NoShard where there is one.
func (s Sharding) of(f Family) Sharding {
	if s.Strategy == "" || size(f.sharers()) == 1 {
		s.Strategy = NoShard
	}
	return s
}

// family is the parameters of one family on this rank: a flat buffer of their own.
type family struct {
	Family
	sharding        Sharding
	trained, frozen []*mpu.Param
}

// families sorts params by family, in the order of mpu's, the packed ones apart; one that has none here is
// left out.
func (g Groups) families(params []*mpu.Param, s Sharding) (all []*family) {
	for _, name := range []mpu.Family{mpu.Dense, mpu.Experts} {
		var packed *family
		f := &family{Family: g.Families[name], sharding: s.of(g.Families[name])}
		if s.Offloaded.Packed != nil {
			packed = f.packed()
			f.sharding.Offloaded = Offloaded{}
		}
		for _, p := range params {
			switch {
			case p.Family != name:
			case packed != nil && p.Frozen && s.Offloaded.Packed(p):
				packed.frozen = append(packed.frozen, p)
			case p.Frozen:
				f.frozen = append(f.frozen, p)
			default:
				f.trained = append(f.trained, p)
			}
		}
		if len(f.trained)+len(f.frozen) > 0 {
			all = append(all, f)
		}
		if packed != nil && len(packed.frozen) > 0 {
			all = append(all, packed)
		}
	}
	return all
}

// packed is a family next to f for its packed parameters, which come where they are used. Ranks share them where they
// share all parameters.
func (f *family) packed() *family {
	p := &family{Family: f.Family, sharding: f.sharding}
	p.sharding.Offloaded.Parameters = true
	if !p.sharding.shardsParameters() {
		p.sharding.Strategy = NoShard
	}
	return p
}

// plans is the family's buckets on paper, the trained ones first.
func (f *family) plans() (trained, frozen []plan) {
	cut := func(params []*mpu.Param) []plan { return layout(params, f.shards(), size(f.Data), f.sharding) }
	return cut(f.trained), cut(f.frozen)
}

func (f *family) sharded() bool { return f.sharding.Strategy != NoShard }

// shards is how many ranks share the family's state; shard is which this one is.
func (f *family) shards() int {
	if !f.sharded() {
		return 1
	}
	return size(f.sharers())
}

func (f *family) shard() int {
	if !f.sharded() {
		return 0
	}
	return f.sharers().Rank()
}

// once reports whether this rank is the one of the world that counts what it has of a
// parameter.
func (f *family) once(p *mpu.Param) bool {
	if f.sharded() {
		return p.Owner && rank(f.Across) == 0
	}
	return p.Owner && rank(f.Data) == 0
}
