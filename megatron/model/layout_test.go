package model_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"monotron/csrc/cpu"
	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/megatron/model"
	"monotron/megatron/spec"
	"monotron/mpu"
	"monotron/mpu/comm"
	"monotron/mpu/comm/inproc"
	"monotron/mpu/topology"
)

// families are the shapes of the tutorials' models that 2 and 4 ranks can share;
// their vocabulary leaves the last of 4 ranks nothing but padding.
func families() map[string]spec.Model {
	all := shapes()
	gpt2 := all["gpt2"]
	gpt2.NumAttentionHeads, gpt2.NumQueryGroups, gpt2.KVChannels, gpt2.MaxPositions = 4, 4, 3, 8
	llama := all["llama"]
	llama.NumQueryGroups, llama.QKNorm = 2, false
	bloom := gpt2
	bloom.Position, bloom.EmbedNorm = spec.PositionAlibi, true
	qwen2 := llama
	qwen2.QKVBias, qwen2.Tied = true, true
	shared := all["odd"] // one query group, norms of queries and keys, trained padding
	shared.WindowLeft = -1
	olmo2 := llama // on 4 ranks two share each group
	olmo2.NormAfter, olmo2.QKNorm, olmo2.QKNormFull = true, true, true
	olmo2.HiddenSize = 32 // of 8 outputs all may be near 0, and normed they are bf16's noise
	neo := gpt2
	neo.QKVBias, neo.WindowLeft, neo.Windowed, neo.SoftmaxScale = false, 1, []bool{false, true, false}, 1
	neox := all["gpt-neox"]
	neox.NumAttentionHeads, neox.NumQueryGroups, neox.KVChannels = 4, 4, 4
	scan, scans := all["state-space scan"], all["state-space scans of groups"]
	scan.InitStd, scans.InitStd = llama.InitStd, llama.InitStd // differences need more, by which rounding grows, too
	return map[string]spec.Model{"state-space scan": scan, "state-space scans of groups": scans, "latent": all["latent"], "latent, wide values": all["latent, wide values"], "gpt-neox": neox, "olmo2": olmo2, "gpt-neo": neo, "gpt2": gpt2, "llama": llama, "bloom": bloom, "qwen2": qwen2, "one group": shared}
}

// layout is a way to run a model.
type layout struct {
	tp        int
	sequence  bool
	saved     bool // distributed
	stages    [][]int
	recompute model.Recompute
}

func (l layout) String() string {
	s := fmt.Sprintf("tp%d", l.tp)
	for _, part := range []struct {
		on   bool
		name string
	}{{l.sequence, " sp"}, {l.saved, " distributed"}, {l.stages != nil, fmt.Sprint(" stages ", l.stages)}, {l.recompute.Granularity != "", fmt.Sprint(" recompute ", l.recompute)}} {
		if part.on {
			s += part.name
		}
	}
	return s
}

const layoutSeq = 8

// rankModel is one rank's stages, which it runs one after the other.
type rankModel struct {
	rig
	stages []*model.Stage
	before int64 // bytes allocated when nothing runs
	kept   int64 // bytes of activations between forward and backward
}

func newRankModel(d *device.Device, m *spec.Model, dtype device.DType, l layout, p model.Parallel) (*rankModel, error) {
	g := &rankModel{rig: rig{d: d, seq: layoutSeq}}
	cut := l.stages
	if cut == nil {
		cut = [][]int{{0, 1, 2}}
	}
	if len(cut) > 1 {
		p.Embedding = comm.Solo("embedding", 0, d)
	}
	for i, layers := range cut {
		s, err := model.NewStage(d, model.StageConfig{Model: m, Layers: layers, Embedding: i == 0, Head: i == len(cut)-1, Recompute: l.recompute, DType: dtype}, p)
		if err != nil {
			return nil, err
		}
		g.stages = append(g.stages, s)
	}
	g.grads = model.Materialize(d, g.stages, layoutSeq, true)
	g.batch(m.VocabSize, dtype)
	g.before = d.Arena.Usage().Allocated
	return g, nil
}

func (g *rankModel) params() []*mpu.Param { return model.ParamsOf(g.stages) }

// step runs forward and backward through the stages and returns the tokens' losses.
// In between it notes the bytes of activations.
func (g *rankModel) step() ([]float64, error) {
	outs := make([]*model.Output, len(g.stages))
	var x device.Tensor
	for i, s := range g.stages {
		out, err := s.Forward(&g.pass, x)
		if err != nil {
			return nil, err
		}
		outs[i], x = out, out.Hidden
	}
	loss := g.read(outs[len(outs)-1].Loss)
	g.kept = g.d.Arena.Usage().Now[device.Activations]
	scope := g.d.Arena.Scope(device.Workspace)
	defer scope.Release()
	var dy device.Tensor
	for i := len(g.stages) - 1; i >= 0; i-- {
		var dx device.Tensor
		if i > 0 {
			dx = scope.Like(outs[i-1].Hidden)
		}
		if err := g.stages[i].Backward(&g.pass, outs[i], dy, dx); err != nil {
			return nil, err
		}
		dy = dx
	}
	return loss, nil
}

// globals are tensors put together from pieces.
type globals map[string][]float64

// put stores a rank's values of p. Values that another rank has stored there must be the
// same.
func (g globals) put(p *mpu.Param, local []float64, add bool) error {
	uncut := mpu.Piece{Size: p.Global}
	if g[p.Name] == nil {
		g[p.Name] = make([]float64, uncut.Len())
		for i := range g[p.Name] {
			g[p.Name][i] = math.NaN()
		}
	}
	var clash error
	eachElement(p, func(at, from int64) {
		old := &g[p.Name][at]
		switch {
		case math.IsNaN(*old):
			*old = local[from]
		case add:
			*old += local[from]
		case *old != local[from]:
			clash = fmt.Errorf("%s, element %d: ranks hold %g and %g", p.Name, at, *old, local[from])
		}
	})
	return clash
}

// eachElement calls f with the index of each element in the global tensor and in
// the local one.
func eachElement(p *mpu.Param, f func(global, local int64)) {
	for _, piece := range p.Pieces {
		for i := range piece.Len() {
			at, rest, stride := int64(0), i, int64(1)
			for d := len(p.Global) - 1; d >= 0; d-- {
				at += (piece.From[d] + rest%piece.Size[d]) * stride
				rest /= piece.Size[d]
				stride *= p.Global[d]
			}
			f(at, piece.Local+i)
		}
	}
}

// outsidePieces is the largest magnitude among the local values that belong to no
// piece.
func outsidePieces(p *mpu.Param, local []float64) (largest float64) {
	rest := slices.Clone(local)
	eachElement(p, func(_, i int64) { rest[i] = 0 })
	for _, v := range rest {
		largest = math.Max(largest, math.Abs(v))
	}
	return largest
}

// take is the local values of p.
func (g globals) take(p *mpu.Param) []float64 {
	local := make([]float64, p.Len())
	eachElement(p, func(global, i int64) { local[i] = g[p.Name][global] })
	return local
}

// answer is what a layout computes.
type answer struct {
	loss  []float64
	grads globals
	kept  int64 // bytes of activations on rank 0 between forward and backward
}

// run computes losses and gradients under a layout, from the given values.
func (l layout) run(t *testing.T, m spec.Model, dtype device.DType, open func() *device.Device, values globals) answer {
	t.Helper()
	ranks, losses, members := make([]*rankModel, l.tp), make([][]float64, l.tp), make([]int, l.tp)
	for rank := range members {
		members[rank] = rank
	}
	sizes := topology.Sizes{TP: l.tp, CP: 1, EP: 1, DP: 1, PP: 1, QueryGroups: m.NumQueryGroups}
	world := inproc.NewWorld(l.tp)
	err := world.Run(func(rank int) error {
		d := open()
		t.Cleanup(d.Arena.Close)
		p := model.Parallel{SequenceParallel: l.sequence, DistributeSaved: l.saved}
		var err error
		if p.TP, err = world.Group(rank, "tp", members, d); err != nil {
			return err
		}
		if p.QuerySharers, err = world.Group(rank, "sharers", sizes.Group(topology.QuerySharers, rank), d); err != nil {
			return err
		}
		g, err := newRankModel(d, &m, dtype, l, p)
		if err != nil {
			return err
		}
		ranks[rank] = g
		losses[rank], err = g.trainFrom(values)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for rank, g := range ranks {
		if now := g.d.Arena.Usage().Allocated; now != g.before {
			t.Errorf("rank %d: %d bytes are left behind", rank, now-g.before)
		}
	}
	return answer{losses[0], assemble(t, ranks, losses), ranks[0].kept}
}

// trainFrom sets the parameters, makes a step and completes the gradients.
func (g *rankModel) trainFrom(values globals) ([]float64, error) {
	for _, p := range g.params() {
		g.set(p, values.take(p))
	}
	loss, err := g.step()
	if err != nil {
		return nil, err
	}
	for _, p := range g.params() {
		if p.SumOver == nil {
			continue
		}
		if err := p.SumOver.AllReduce(p.Grad, comm.Sum).Wait(); err != nil {
			return nil, err
		}
	}
	return loss, nil
}

// assemble joins the ranks' gradients and checks that ranks agree, that every
// element has one owner and that all ranks know all losses.
func assemble(t *testing.T, ranks []*rankModel, losses [][]float64) globals {
	t.Helper()
	grads, owners := globals{}, globals{}
	for r, g := range ranks {
		if fmt.Sprint(losses[r]) != fmt.Sprint(losses[0]) {
			t.Errorf("rank %d has other losses than rank 0", r)
		}
		tables := 0 // a tied table on two stages: both have a part of the gradient
		for _, p := range g.params() {
			if p.Name == "embedding.word_embeddings.weight" {
				tables++
			}
			if err := grads.put(p, g.read(p.Grad), tables > 1 && p.Name == "embedding.word_embeddings.weight"); err != nil {
				t.Errorf("rank %d: %v", r, err)
			}
			if padding := outsidePieces(p, g.read(p.Grad)); padding != 0 {
				t.Errorf("rank %d: %s: padding has the gradient %g", r, p.Name, padding)
			}
			if p.Owner {
				one := make([]float64, p.Len())
				for i := range one {
					one[i] = 1
				}
				if err := owners.put(p, one, true); err != nil {
					t.Error(err)
				}
			}
		}
	}
	for name, counts := range owners {
		if slices.ContainsFunc(counts, func(n float64) bool { return n != 1 }) || len(counts) != len(grads[name]) {
			t.Errorf("%s: elements have owners %v, each must have one", name, counts)
		}
	}
	return grads
}

// off is how far losses and each gradient are from want, relative by norm.
func (a answer) off(t *testing.T, want answer) map[string]float64 {
	t.Helper()
	all := map[string]float64{"losses": distance(a.loss, want.loss)}
	if got, want := slices.Sorted(maps.Keys(a.grads)), slices.Sorted(maps.Keys(want.grads)); !slices.Equal(got, want) {
		t.Fatalf("tensors %v, want %v", got, want)
	}
	for name, g := range want.grads {
		all[name] = distance(a.grads[name], g)
	}
	return all
}

func distance(got, want []float64) float64 {
	off, norm := 0.0, 0.0
	for i, v := range want {
		off += (got[i] - v) * (got[i] - v)
		norm += v * v
	}
	if norm > 0 {
		off /= norm
	}
	return math.Sqrt(off)
}

// compare fails where a is further from want than the tolerance.
func (a answer) compare(t *testing.T, want answer, tolerance float64) {
	t.Helper()
	worst := 0.0
	for name, off := range a.off(t, want) {
		worst = math.Max(worst, off)
		if !(off <= tolerance) {
			t.Errorf("%s: off by %.3g of its norm", name, off)
		}
	}
	t.Logf("worst %.2g", worst)
}

// start is a one-rank model's values, with constants moved off their special values.
func start(t *testing.T, m spec.Model) globals {
	t.Helper()
	d := ref.Open()
	defer d.Arena.Close()
	g, err := newRankModel(d, &m, device.F64, layout{tp: 1}, model.Alone(d))
	if err != nil {
		t.Fatal(err)
	}
	values := globals{}
	for _, p := range g.params() {
		p.Initialize(d, 7)
		if err := values.put(p, jitter(p, g.values(p)), false); err != nil {
			t.Fatal(err)
		}
	}
	return values
}

func oneRank(t *testing.T, m spec.Model, dtype device.DType, open func() *device.Device, values globals) answer {
	t.Helper()
	return layout{tp: 1}.run(t, m, dtype, open, values)
}

// layouts are what is compared with one rank.
func layouts() []layout {
	full := model.Recompute{Granularity: "full", Method: "uniform", NumLayers: 2}
	block := model.Recompute{Granularity: "full", Method: "block", NumLayers: 1}
	selective := model.Recompute{Granularity: "selective", Modules: []string{"core_attn", "mlp", "layernorm"}}
	four := [][]int{{}, {0}, {1, 2}, {}} // embedding alone, head alone
	var all []layout
	for _, tp := range []int{2, 4} {
		for _, sequence := range []bool{false, true} {
			all = append(all, layout{tp: tp, sequence: sequence}, layout{tp: tp, sequence: sequence, recompute: selective})
		}
	}
	return append(all,
		layout{tp: 2, recompute: full}, layout{tp: 2, recompute: full, saved: true}, layout{tp: 4, recompute: block, saved: true},
		layout{tp: 2, sequence: true, recompute: full}, layout{tp: 4, sequence: true, recompute: block},
		layout{tp: 1, stages: four}, layout{tp: 1, stages: [][]int{{0, 1}, {2}}, recompute: full}, layout{tp: 2, stages: four, sequence: true}, layout{tp: 2, stages: [][]int{{0}, {1}, {2}}},
	)
}

// Claim: on the f64 oracle, with dropout, documents, masked tokens and padding,
// every layout of tensor and sequence parallelism, recomputation and stages gives
// one rank's losses and gradients to rounding; ranks that hold the same values have
// the same gradients bit for bit, and every element has one owner.
func TestLayoutsAreOneRank(t *testing.T) {
	for name, m := range families() {
		values := start(t, m)
		want := oneRank(t, m, device.F64, ref.Open, values)
		for _, l := range layouts() {
			t.Run(fmt.Sprint(name, " ", l), func(t *testing.T) {
				l.run(t, m, device.F64, ref.Open, values).compare(t, want, 1e-12)
			})
		}
	}
}

// openCPU opens CPU devices; without one the test is skipped.
func openCPU(t *testing.T) func() *device.Device {
	t.Helper()
	d, err := cpu.Open()
	if err != nil {
		t.Skip(err)
	}
	d.Arena.Close()
	return func() *device.Device {
		d, err := cpu.Open()
		if err != nil {
			panic(err)
		}
		return d
	}
}

// Claim: the same in f32 on the CPU device, to 1e-5.
func TestLayoutsOnCPU(t *testing.T) {
	open := openCPU(t)
	for name, m := range families() {
		values := start(t, m)
		want := oneRank(t, m, device.F32, open, values)
		for _, l := range layouts() {
			t.Run(fmt.Sprint(name, " ", l), func(t *testing.T) {
				l.run(t, m, device.F32, open, values).compare(t, want, 1e-5)
			})
		}
	}
}

// Claim: in bf16 a layout, which rounds each rank's partial sums, is about as far
// from the exact answer as one rank is.
func TestLayoutsInBF16(t *testing.T) {
	open := openCPU(t)
	for name, m := range families() {
		values := start(t, m)
		exact := oneRank(t, m, device.F64, ref.Open, values)
		one := oneRank(t, m, device.BF16, open, values).off(t, exact)
		for _, l := range layouts() {
			t.Run(fmt.Sprint(name, " ", l), func(t *testing.T) {
				for tensor, off := range l.run(t, m, device.BF16, open, values).off(t, exact) {
					if !(off <= 5*math.Max(one[tensor], 0.01)) {
						t.Errorf("%s: off by %.3g of its norm, one rank by %.3g", tensor, off, one[tensor])
					}
				}
			})
		}
	}
}

// Claim: between forward and backward sequence parallelism holds 1/tp of one rank's
// activations (Korthikanti et al., arXiv 2205.05198, section 4.2.2), but for the
// losses and small blocks' rounding; distributed inputs of recomputed layers take
// 1/tp of their memory.
func TestActivationsKept(t *testing.T) {
	m := families()["gpt2"]
	m.HiddenSize, m.KVChannels, m.FFNHiddenSize = 64, 16, 256
	values := start(t, m)
	kept := func(l layout) int64 { return l.run(t, m, device.F32, ref.Open, values).kept }
	one := kept(layout{tp: 1})
	for _, tp := range []int64{2, 4} {
		if got := kept(layout{tp: int(tp), sequence: true}); got > one/tp*11/10 {
			t.Errorf("tp %d: %d bytes, one rank holds %d", tp, got, one)
		}
		full := layout{tp: int(tp), recompute: model.Recompute{Granularity: "full", Method: "uniform", NumLayers: 1}}
		uncut := kept(full)
		full.saved = true
		inputs := int64(m.NumLayers) * layoutSeq * testBatch * int64(m.HiddenSize) * 4
		if got, want := kept(full), uncut-inputs+inputs/tp; got != want {
			t.Errorf("tp %d: distributed inputs leave %d bytes, want %d of %d", tp, got, want, uncut)
		}
	}
}

// Claim: the owner of sharded parameters is notified in time: every parameter that a pass reads
// is in use then, and each one's gradient is final once, when it is complete.
func TestHooksFollowTheUse(t *testing.T) {
	m := families()["bloom"]
	for _, stages := range [][][]int{{{0, 1, 2}}, {{}, {0}, {1, 2}, {}}} {
		values := start(t, m)
		d := ref.Open()
		defer d.Arena.Close()
		g, err := newRankModel(d, &m, device.F64, layout{stages: stages, recompute: model.Recompute{Granularity: "full", Method: "uniform", NumLayers: 2}}, model.Alone(d))
		if err != nil {
			t.Fatal(err)
		}
		inUse, final := map[*mpu.Param]int{}, map[*mpu.Param][]float64{}
		hide := func(p *mpu.Param) { // what is not in use is not there
			x := make([]float64, p.Len())
			for i := range x {
				x[i] = math.NaN()
			}
			g.set(p, x)
		}
		for _, p := range g.params() {
			hide(p)
		}
		g.pass.Use = func(ps []*mpu.Param) error {
			for _, p := range ps {
				if inUse[p]++; inUse[p] == 1 {
					g.set(p, values.take(p))
				}
			}
			return nil
		}
		g.pass.Done = func(ps []*mpu.Param) {
			for _, p := range ps {
				if inUse[p]--; inUse[p] == 0 {
					hide(p)
				}
			}
		}
		g.pass.Gradients = func(ps []*mpu.Param) error {
			for _, p := range ps {
				if final[p] != nil {
					t.Errorf("%s: final twice", p.Name)
				}
				final[p] = g.read(p.Grad)
			}
			return nil
		}
		if _, err := g.step(); err != nil {
			t.Fatal(err)
		}
		for _, p := range g.params() {
			if got := g.read(p.Grad); inUse[p] != 0 || !slices.Equal(got, final[p]) || !(math.Abs(got[0]) > 0) {
				t.Errorf("stages %v, %s: used %d times too often, final %v, at the end %v", stages, p.Name, inUse[p], final[p], got)
			}
		}
	}
}

// crowd is the first rank of a group of n that never meets.
func crowd(n int) *comm.Group {
	return comm.NewGroup(comm.Membership{Name: "tp", Members: make([]int, n)}, nil)
}

// Claim: what ranks cannot share is refused with the number that does not fit.
func TestBadLayouts(t *testing.T) {
	d := ref.Open()
	defer d.Arena.Close()
	m := families()["llama"]
	for _, c := range []struct {
		ranks  int
		change func(*spec.Model, *model.Parallel)
		says   string
	}{
		{ranks: 3, says: "4 attention heads"},
		{ranks: 4, change: func(m *spec.Model, _ *model.Parallel) { m.NumQueryGroups = 3 }, says: "3 query groups"},
		{ranks: 4, says: "2 query groups on 4 ranks"},
		{ranks: 2, change: func(m *spec.Model, _ *model.Parallel) { m.FFNHiddenSize = 7 }, says: "--ffn-hidden-size 7"},
		{ranks: 2, change: func(m *spec.Model, _ *model.Parallel) { m.PaddedVocabSize = 13 }, says: "13 rows"},
		{ranks: 2, change: func(_ *spec.Model, p *model.Parallel) { p.SequenceParallel, p.DistributeSaved = true, true }, says: "already shards"},
	} {
		m := m
		p := model.Parallel{TP: crowd(c.ranks)}
		if c.change != nil {
			c.change(&m, &p)
		}
		_, err := model.NewStage(d, model.StageConfig{Model: &m, Layers: []int{0}, Embedding: true, Head: true}, p)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%d ranks: %v, should say %q", c.ranks, err, c.says)
		}
	}
	p := model.Parallel{TP: crowd(2), SequenceParallel: true}
	s, err := model.NewStage(d, model.StageConfig{Model: &m, Layers: []int{0}, Embedding: true, Head: true}, p)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Forward(&model.Pass{D: d, Positions: mpu.AllPositions(7), Batch: 1}, device.Tensor{}); err == nil || !strings.Contains(err.Error(), "7 positions") {
		t.Errorf("7 positions on 2 ranks: %v", err)
	}
}
