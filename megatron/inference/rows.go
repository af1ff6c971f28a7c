package inference

import (
	"monotron/csrc/device"
	"monotron/megatron/model"
	"monotron/mpu"
)

// batch is one pass over rows of several sequences: all that a rank needs to take part.
type batch struct {
	edition        int32 // of the weights
	ids, positions []int32
	sequence       []int32   // of each row: number in tables
	tables         [][]int32 // blocks of each sequence
	wanted         []int32   // rows whose logits are asked for
}

// newPaged makes blocks of keys and values for all stages here.
func (g *Generator) newPaged(blocks int) (kv []*model.Paged) {
	for _, s := range g.Stages {
		kv = append(kv, s.NewPaged(int64(blocks)))
	}
	return kv
}

// blockBytes is what a block takes on this rank.
func (g *Generator) blockBytes() (bytes int64) {
	for _, s := range g.Stages {
		bytes += s.BlockBytes()
	}
	return bytes
}

// rows runs a batch and shows the logits of the wanted rows, in order and a few at a time:
// f32 [rows, vocab]. Every rank of the model runs the same batch.
func (g *Generator) rows(b *batch, kv []*model.Paged, use func(first int, logits model.Tensor) error) error {
	d, n := g.Device, int64(len(b.ids))
	scope := d.Arena.Scope(device.Activations)
	defer scope.Release()
	write := func(values []int32, shape ...int64) device.Tensor {
		t := scope.Alloc(device.I32, shape...)
		device.WriteSlice(d, t, values)
		return t
	}
	// One pass of n rows from several sequences; which row is whose, rows say.
	p := &model.Pass{D: d, DType: g.DType, Positions: mpu.AllPositions(n), Batch: 1, Full: true, IDs: write(b.ids, n), PositionIDs: write(b.positions, n)}
	// tables: i32 [sequences, longest table], block numbers by sequence; rows: i32 [n, 2], sequence and position.
	most := 1
	for _, t := range b.tables {
		most = max(most, len(t))
	}
	tables, slots := make([]int32, len(b.tables)*most), make([]int32, 0, 2*n)
	for i, t := range b.tables {
		copy(tables[i*most:], t)
	}
	for i, s := range b.sequence {
		slots = append(slots, s, b.positions[i])
	}
	tableTensor, slotTensor := write(tables, int64(len(b.tables)), int64(most)), write(slots, n, 2)
	for _, k := range kv {
		k.Tables, k.Rows = tableTensor, slotTensor
	}
	// hidden: [n, h] on the stage with the head. logits: f32 [wanted, vocab] would be large, so a few at a time.
	return g.forward(p, kv, func(hidden model.Tensor) error {
		for at := 0; at < len(b.wanted); at += logitRows {
			wanted := b.wanted[at:min(at+logitRows, len(b.wanted))]
			var some model.Tensor
			if hidden.Given() {
				some = scope.Alloc(g.DType, int64(len(wanted)), hidden.Last())
				d.EmbeddingForward(device.EmbeddingForwardArgs{Out: some, Table: hidden, IDs: write(wanted, int64(len(wanted)))})
			}
			if err := g.logits(p, some, everyRank, 0, int64(len(wanted)), func(logits model.Tensor) error { return use(at, logits) }); err != nil {
				return err
			}
		}
		return d.Sync()
	})
}
