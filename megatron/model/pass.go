package model

import (
	"math"

	"monotron/csrc/device"
	"monotron/internal/elementary"
	"monotron/megatron/spec"
	"monotron/mpu"
)

// Tensor shortens the signatures of this package.
type Tensor = device.Tensor

// Pass is what the layers share while one micro-batch goes through: where, in
// which dtype, and everything about the batch that is not an activation.
type Pass struct {
	D         *device.Device
	DType     device.DType  // of values
	Positions mpu.Positions // of each sample, here
	Batch     int64         // b: samples of the micro-batch

	// Where ranks share samples: the documents that are cut each by itself, none: the sample
	// uncut; and the first position that any sample's query at a position sees, nil: 0.
	Documents mpu.Positions
	FirstSeen []int32
	Full      bool // each of them has all rows of this pass: of a text that continues

	IDs         Tensor // i32 [tokens], first stage
	PositionIDs Tensor // i32 [tokens], counted from the document's start where that is asked for
	DocStart    Tensor // i32 [b, positions of the sample, wherever they are]: first key a query may see; none: 0
	Labels      Tensor // i32 [tokens], last stage
	Weight      Tensor // f32 [tokens]: d(total loss)/d(token loss), last stage

	// Learned are stretches {first, number} of tokens outside of which no loss counts: there it is 0, and no
	// logits are made. nil: all tokens. Last stage.
	Learned [][2]int64

	Ahead     []Ahead // of each depth of multi-token prediction, last stage, in training
	LossScale Tensor  // f32 [1]; none: 1

	// Weigh, where given, sets Weight from the tokens' losses, f32 [tokens], which are then all computed
	// before the first gradient: the loss of a step is not their mean. Last stage.
	Weigh func(loss Tensor) error

	// Dropout is on where Step is given.
	Step    Tensor // i64 [1]: the iteration
	Samples Tensor // i32 [b]: number of each sample in the global batch
	Seed    uint64

	mpu.Hooks // of an optimizer that shards or offloads parameters

	// Exchanged, where given, runs what brings the keys or heads of other ranks here, or waits
	// for it; others may time it.
	Exchanged func(wait func() error) error

	Micro     int        // micro-batches of the step so far, with this one
	Counted   float64    // tokens of the micro-batch by which routers' own losses are weighted, with Auxiliary.PerToken
	Auxiliary *Auxiliary // losses of layers, and other statistics of theirs; nil: not collected
	Again     bool       // a forward that is recomputed for its backward: it reports nothing
	saved     *Saved     // of the stage that the micro-batch is on

	Grad    bool   // backward follows: keep what it needs
	Choices bool   // Output has the largest logits
	Paged   *Paged // generation: keys and values so far

	// AsGenerated, where given, says where generation has the rows of complete sequences: attention then
	// has its bits.
	AsGenerated *Placed

	// See, where given, is shown the residual stream [tokens, h] (the rank's rows
	// under sequence parallelism) as it enters the first layer (0) and leaves layer i
	// (i+1, global), while it exists.
	See func(depth int, x Tensor)

	// SeeAhead, where given, is shown the state of each depth of multi-token prediction (from 1)
	// that the head takes, [tokens, h] as See, while it exists.
	SeeAhead func(depth int, x Tensor)

	// Routed, where given, is shown what the mixture of each layer (global) chose.
	Routed func(layer int, r Routing)
}

// Routing is what a router chose for the rows of this rank, and which rows its experts received.
type Routing struct {
	Logits  Tensor // [rows, experts]
	Experts Tensor // i32 [rows, k]: chosen
	Sent    Tensor // i32 [rows, k]: those that are not dropped; else −1
	Weights Tensor // f32 [rows, k]
	Offsets Tensor // i32 [experts here + 1]: where the rows of each expert here begin

	Exchange mpu.Exchange
}

// exchanged is wait under Exchanged.
func (p *Pass) exchanged(wait func() error) error {
	if p.Exchanged == nil {
		return wait()
	}
	return p.Exchanged(wait)
}

func (p *Pass) show(depth int, x Tensor) {
	if p.See != nil {
		p.See(depth, x)
	}
}

// Seq is s, the number of positions here.
func (p *Pass) Seq() int64 { return p.Positions.Len() }

// documents are those of samples of n positions.
func (p *Pass) documents(n int64) mpu.Positions {
	if p.Documents == nil {
		return mpu.AllPositions(n)
	}
	return p.Documents
}

// Tokens is s*b.
func (p *Pass) Tokens() int64 { return p.Seq() * p.Batch }

// hidden is the dropout of hidden states outside the region.
func (p *Pass) hidden(r mpu.Region, rate float64, at string) hiddenDropout {
	return hiddenDropout{pass: p, rate: rate, at: at, positions: r.Positions(p.Positions)}
}

// dropout names the masks of one dropout of the model, for rows from a position on.
func (p *Pass) dropout(rate float64, name string, position int64) device.Dropout {
	if rate == 0 || !p.Step.Given() {
		return device.Dropout{}
	}
	return device.Dropout{Stream: device.StreamKey(p.Seed, name), Step: p.Step, Samples: p.Samples, Rate: float32(rate), Position: int32(position)}
}

// Paged is the KV cache of generation: for each layer a tensor of blocks [blocks, groups, 2,
// PagedBlock·d], each of which belongs to any sequence. A pass may contain any number of rows
// of any sequences; see device.PagedAttentionArgs. If ranks share the positions of a pass, its
// rows are the first ones of a single sequence, which has the first blocks.
type Paged struct {
	First        int      // global number of the stage's first layer; the others follow it
	Layers       []Tensor // none where a layer reads another's, or has no mixer
	Tables, Rows Tensor   // i32 [sequences, most], [tokens, 2]; of this pass
}

// positionTables are made once for all layers of a stage that use them.
type positionTables struct {
	device    *device.Device
	m         *spec.Model
	dtype     device.DType // of values
	positions int64
	rope      [2]*ropeTables // of layers without a window, and of those with one
	growth    *ropeTables
	ones      Tensor // see sumOverHeads
}

// ropes are a layer's tables; layers share them.
func (t *positionTables) ropes(layer int) *ropeTables {
	i := 0
	m := t.m.AttentionOf(layer)
	if (m.WindowRope != "" || t.m.Full != nil) && m.WindowedAt(layer) {
		i = 1
	}
	if t.rope[i] == nil {
		table, err := m.RopeTable(i == 1 && m.WindowRope != "", int(t.positions))
		if err != nil {
			panic(err) // lacks has read the rules
		}
		t.rope[i] = newRopeTables(t.device, t.positions, len(table.Frequencies), func(position int64, pair int) (sin, cos float64) {
			sin, cos = elementary.Sincos(float64(position) * table.Frequencies[pair])
			return sin * table.Factor, cos * table.Factor
		})
	}
	return t.rope[i]
}

// growths are tables that rotate by nothing, and multiply by what queries grow with their
// positions (Model.QueryGrowth).
func (t *positionTables) growths() *ropeTables {
	if t.growth == nil {
		from := int64(1)
		if t.m.QueryGrowthAll {
			from = 0
		}
		t.growth = newRopeTables(t.device, t.positions, t.m.KVChannels/2, func(position int64, _ int) (sin, cos float64) {
			return 0, 1 + float64(t.m.QueryGrowth*elementary.Log(1+math.Floor(float64(position+from)/float64(t.m.QueryGrowthFrom))))
		})
	}
	return t.growth
}

// ropeTables are cos and sin, times a factor, of position*frequency: f32 [positions, dims/2].
type ropeTables struct{ cos, sin Tensor }

func newRopeTables(d *device.Device, positions int64, pairs int, at func(position int64, pair int) (sin, cos float64)) *ropeTables {
	n := int64(pairs)
	t := &ropeTables{d.Arena.Alloc(device.Parameters, device.F32, positions, n), d.Arena.Alloc(device.Parameters, device.F32, positions, n)}
	if d.Counts() {
		return t
	}
	cos, sin := make([]float32, positions*n), make([]float32, positions*n)
	for p := range positions {
		for i := range pairs {
			s, c := at(p, i)
			cos[p*n+int64(i)], sin[p*n+int64(i)] = float32(c), float32(s)
		}
	}
	device.WriteSlice(d, t.cos, cos)
	device.WriteSlice(d, t.sin, sin)
	return t
}
