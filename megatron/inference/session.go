package inference

import (
	"fmt"
	"math"

	"monotron/csrc/device"
	"monotron/fault"
	"monotron/megatron/model"
	"monotron/mpu"
	"monotron/mpu/comm"
)

// Generator is a rank's part of a model that generates. Where several ranks share
// the model, all call the same methods with the same arguments: each has the same
// logits, makes the same choices and gets the same result.
type Generator struct {
	Device     *device.Device
	Stages     []*model.Stage // the rank's chunks, in the order of the pipeline
	Pipeline   *comm.Group    // the stages of the model; nil: this rank has all
	Context    *comm.Group    // ranks that share the positions of what is fed at once; nil: this rank takes all
	Hidden     int64          // width between stages; not used without Pipeline
	DType      device.DType   // of values
	Vocab      int            // logits that count
	MaxContext int            // positions the model knows; 0: no limit of its own
}

// session is a batch of sequences of equal length being extended.
type session struct {
	g      *Generator
	caches []*model.Cache // of each stage here
	used   int64          // positions filled
	batch  int64
}

func (g *Generator) newSession(capacity, batch int64) *session {
	s := &session{g: g, batch: batch}
	for _, stage := range g.Stages {
		s.caches = append(s.caches, stage.NewCache(capacity, batch))
	}
	return s
}

func (s *session) close() {
	for _, c := range s.caches {
		c.Free(s.g.Device)
	}
}

// extend feeds n new tokens of every sequence, rows [batch][n], and returns the
// f32 logits after the last one, [batch][vocab].
func (s *session) extend(rows [][]int32) ([][]float32, error) {
	if n := s.g.shared(int64(len(rows[0]))); n > 0 {
		if err := s.share(rows, n, func(*model.Pass, model.Tensor) error { return nil }); err != nil {
			return nil, err
		}
		rest := make([][]int32, len(rows))
		for j, row := range rows {
			rest[j] = row[n:]
		}
		rows = rest
	}
	n := int64(len(rows[0]))
	var flat []float32
	err := s.feed(rows, &model.Pass{Positions: mpu.AllPositions(n), Whole: true}, n, func(p *model.Pass, hidden model.Tensor) (err error) {
		flat, err = s.g.logits(p, hidden, everyRank, (n-1)*s.batch, s.batch)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := checkLogits(flat); err != nil {
		return nil, err
	}
	result := make([][]float32, s.batch)
	for j := range result {
		result[j] = flat[j*s.g.Vocab : (j+1)*s.g.Vocab]
	}
	return result, nil
}

// shared is how many of n new tokens the ranks of Context share. Each takes the others, one
// at least, so that all have the last one's logits.
func (g *Generator) shared(n int64) int64 {
	if g.Context == nil {
		return 0
	}
	unit := int64(2 * g.Context.Size())
	return (n - 1) / unit * unit
}

// share feeds the first n tokens of every sequence, of which this rank takes its part.
func (s *session) share(rows [][]int32, n int64, use func(p *model.Pass, hidden model.Tensor) error) error {
	c := s.g.Context
	return s.feed(rows, &model.Pass{Positions: mpu.AllPositions(n).ZigZag(c.Rank(), c.Size())}, n, use)
}

// feed runs the positions of p, of n new tokens of every sequence; use gets the last stage's
// output.
func (s *session) feed(rows [][]int32, p *model.Pass, n int64, use func(p *model.Pass, hidden model.Tensor) error) error {
	d := s.g.Device
	scope := d.Arena.Scope(device.Activations)
	defer scope.Release()
	p.D, p.DType, p.Batch = d, s.g.DType, s.batch
	positions := make([][]int32, len(rows))
	for j := range rows {
		for i := range n {
			positions[j] = append(positions[j], int32(s.used+i))
		}
	}
	p.IDs, p.PositionIDs = scope.Alloc(device.I32, p.Tokens()), scope.Alloc(device.I32, p.Tokens())
	device.WriteSlice(d, p.IDs, mpu.Flatten(p.Positions, rows))
	device.WriteSlice(d, p.PositionIDs, mpu.Flatten(p.Positions, positions))
	if err := s.g.forward(p, s.caches, func(hidden model.Tensor) error { return use(p, hidden) }); err != nil {
		return err
	}
	s.used += n
	for _, c := range s.caches {
		c.Used = s.used
	}
	return nil
}

// reorder makes sequence j continue what sequence parents[j] was.
func (s *session) reorder(parents []int) {
	d := s.g.Device
	for _, c := range s.caches {
		for l, old := range c.Layers {
			fresh := d.Arena.Alloc(device.Activations, old.DType, old.Dims()...)
			for j, from := range parents {
				d.Copy(s.sequence(fresh, int64(j)), s.sequence(old, int64(from)))
			}
			d.Arena.Free(old)
			c.Layers[l] = fresh
		}
	}
}

// sequence views the filled positions of sample j: [used, groups, 2, d].
func (s *session) sequence(layer device.Tensor, j int64) device.Tensor {
	v := layer.Slice(0, j, 1+(s.used-1)*s.batch)
	v.Shape[0] = s.used
	v.Stride[0] *= s.batch
	return v
}

// CheckPrompt refuses a prompt, with `more` tokens to follow, that the model cannot take.
func (g *Generator) CheckPrompt(prompt []int32, more int) error {
	if len(prompt) == 0 {
		return fault.Errorf(fault.Usage, "the prompt has no tokens; give at least one")
	}
	for i, id := range prompt {
		if id < 0 || int(id) >= g.Vocab {
			return fault.Errorf(fault.BadData, "token %d of the prompt is %d; the model's vocabulary has %d ids", i, id, g.Vocab)
		}
	}
	if g.MaxContext > 0 && len(prompt)+more > g.MaxContext {
		return fault.Errorf(fault.Usage, "%d tokens of prompt and %d to generate exceed the model's %d positions", len(prompt), more, g.MaxContext)
	}
	return nil
}

// logSoftmax of f32 logits, in float64.
func logSoftmax(logits []float32) []float64 {
	norm := logNorm(logits)
	out := make([]float64, len(logits))
	for i, x := range logits {
		out[i] = float64(x) - norm
	}
	return out
}

// logNorm is the log of the sum of exp(logits), in float64.
func logNorm(logits []float32) float64 {
	top := math.Inf(-1)
	for _, x := range logits {
		top = math.Max(top, float64(x))
	}
	sum := 0.0
	for _, x := range logits {
		sum += math.Exp(float64(x) - top)
	}
	return top + math.Log(sum)
}

// banRepeats puts −inf on the tokens that would repeat an n-gram of ids.
func banRepeats(logProbs []float64, ids []int32, n int) {
	if n <= 0 || len(ids) < n {
		return
	}
	last := fmt.Sprint(ids[len(ids)-n+1:])
	for i := 0; i+n <= len(ids); i++ {
		if fmt.Sprint(ids[i:i+n-1]) == last {
			logProbs[ids[i+n-1]] = math.Inf(-1)
		}
	}
}
