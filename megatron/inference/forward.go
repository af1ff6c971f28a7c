package inference

import (
	"monotron/csrc/device"
	"monotron/megatron/model"
	"monotron/mpu/comm"
)

// forward runs a pass through the stages of all ranks; kv, where given, are the keys and
// values of the stages here. use gets the last stage's output, or no tensor on the ranks that
// do not have it.
func (g *Generator) forward(p *model.Pass, kv []*model.Paged, use func(hidden model.Tensor) error) error {
	for v := range g.Stages {
		if kv != nil {
			p.Paged = kv[v]
		}
		if err := g.stage(p, v, use); err != nil {
			return err
		}
	}
	if g.last(len(g.Stages) - 1) {
		return nil
	}
	return use(model.Tensor{})
}

// stage runs the v-th stage here, between those of its neighbours.
func (g *Generator) stage(p *model.Pass, v int, use func(model.Tensor) error) error {
	scope := g.Device.Arena.Scope(device.Activations)
	defer scope.Release()
	var in model.Tensor
	if !g.first(v) {
		in = scope.Alloc(p.DType, p.Tokens(), g.Hidden)
		if err := g.exchange(comm.Transfer{Peer: g.neighbour(-1), T: in}); err != nil {
			return err
		}
	}
	out, err := g.Stages[v].Forward(p, in)
	if err != nil {
		return err
	}
	defer out.Release()
	if g.last(v) {
		return use(out.Hidden)
	}
	return g.exchange(comm.Transfer{Peer: g.neighbour(1), Send: true, T: out.Hidden})
}

func (g *Generator) first(v int) bool {
	return v == 0 && (g.Pipeline == nil || g.Pipeline.Rank() == 0)
}

func (g *Generator) last(v int) bool {
	return v == len(g.Stages)-1 && (g.Pipeline == nil || g.Pipeline.Rank() == g.Pipeline.Size()-1)
}

func (g *Generator) neighbour(step int) int {
	return (g.Pipeline.Rank() + step + g.Pipeline.Size()) % g.Pipeline.Size()
}

func (g *Generator) exchange(t comm.Transfer) error {
	return g.Pipeline.Exchange([]comm.Transfer{t}).Wait()
}

// everyRank of Context has the rows.
const everyRank = -1

// logits shows those of rows of the last stage's output, which the owner among the ranks of
// Context has: f32 [rows, vocabulary], on every rank.
func (g *Generator) logits(p *model.Pass, hidden model.Tensor, owner int, at, rows int64, use func(logits model.Tensor) error) error {
	d := g.Device
	scope := d.Arena.Scope(device.Activations)
	defer scope.Release()
	out := scope.Alloc(device.F32, rows, int64(g.Vocab))
	has := owner == everyRank || owner == g.Context.Rank()
	if has && hidden.Given() {
		if err := g.Stages[len(g.Stages)-1].Logits(p, out, hidden.Slice(0, at, rows)); err != nil {
			return err
		}
	}
	if has && g.Pipeline != nil {
		if err := g.Pipeline.Broadcast(out, g.Pipeline.Size()-1).Wait(); err != nil {
			return err
		}
	}
	if owner != everyRank {
		if err := g.Context.Broadcast(out, owner).Wait(); err != nil {
			return err
		}
	}
	return use(out)
}

// onHost are the rows of logits: f32 [rows][vocabulary].
func (g *Generator) onHost(logits model.Tensor) (rows [][]float32, err error) {
	flat := device.ReadSlice[float32](g.Device, logits)
	if err := g.Device.Sync(); err != nil {
		return nil, err
	}
	for at := 0; at < len(flat); at += g.Vocab {
		rows = append(rows, flat[at:at+g.Vocab:at+g.Vocab])
	}
	return rows, nil
}
