package optimizer

import (
	"cmp"
	"math"
	"slices"

	"monotron/csrc/device"
	"monotron/mpu"
)

// Scales of Muon's updates of a matrix [out, in] (--muon-scale-mode).
const (
	ScaleSpectral = "spectral"      // √max(out, in)
	ScaleUnitRMS  = "unit_rms_norm" // √(out/in)
	ScaleShape    = "shape_scaling" // √max(1, out/in)
)

// MuonDuplicated and MuonBlockwise say what one matrix is where ranks hold parts of a weight
// (--muon-tp-mode): the weight, which each of them has complete for the update; or what a rank
// has of it, so that updates depend on the layout.
const (
	MuonDuplicated = "duplicated"
	MuonBlockwise  = "blockwise"
)

// MuonMedium is the precision of products (--muon-fp32-matmul-prec) under which matrices are
// bf16 during the iteration; else they are f32.
const MuonMedium = "medium"

// MuonConfig is Muon's share of Config.
type MuonConfig struct {
	Momentum     float64
	Nesterov     bool
	FullQKV      bool   // Q, K and V are one matrix
	PerHead      bool   // each head's rows of a weight that makes queries, keys or values are one
	SplitGate    bool   // the gate of a gated MLP and the values it multiplies are two matrices
	Scale        string // ScaleSpectral, ..
	Extra        float64
	Precision    string
	Coefficients string // of newtonSchulzSets
	Steps        int
	TPMode       string
	Vectors      string  // what updates the rest: Adam, Lion
	VectorRate   float64 // the learning rate of the rest over Muon's; 0: 1

	Moment2    string // of AdaptiveMuon: MomentElements, MomentLines
	Beta2, Eps float64
}

// vectors is the optimizer of everything but Muon's matrices.
func (c *Config) vectors() string {
	switch {
	case !c.Matrices():
		return c.Kind
	case c.Muon.Vectors == Lion:
		return Lion
	}
	return Adam
}

// coefficients are a, b and c of a step X ← aX + (bA + cA²)X with A = XXᵀ.
type coefficients [3]float64

// coefficientSet is those of the first steps; more steps than it has repeat its last ones, or
// begin again.
type coefficientSet struct {
	steps   []coefficients
	repeat  bool
	stretch float64 // of the norm that a matrix is divided by at first; 0: 1
	plus    float64 // and what is added to it
}

// newtonSchulzSets are the sets of NVIDIA's Emerging-Optimizers, by name (--muon-coefficient-type), and that
// of modded-nanogpt and nanochat (five steps of Polar Express for a lower bound of 2e-2, which divide by 1.01
// of the norm).
var newtonSchulzSets = map[string]coefficientSet{
	"simple": {steps: []coefficients{{3.4445, -4.7750, 2.0315}}},
	"quintic": {steps: []coefficients{{4.0848, -6.8946, 2.9270}, {3.9505, -6.3029, 2.6377}, {3.7418, -5.5913, 2.3037},
		{2.8769, -3.1427, 1.2046}, {2.8366, -3.0525, 1.2012}}},
	"polar_express": {repeat: true, steps: []coefficients{{8.2051, -22.9019, 16.4607}, {4.0664, -2.8612, 0.5184}, {3.9096, -2.8234, 0.5250},
		{3.2856, -2.4153, 0.4853}, {2.2779, -1.6198, 0.3985}, {1.8726, -1.2307, 0.3585}, {1.8564, -1.2132, 0.3568}, {1.8750, -1.25, 0.375}}},
	"polar_express_nanochat": {repeat: true, stretch: 1.01, plus: 1e-6, steps: []coefficients{{8.156554524902461, -22.48329292557795, 15.878769915207462},
		{4.042929935166739, -2.808917465908714, 0.5000178451051316}, {3.8916678022926607, -2.772484153217685, 0.5060648178503393},
		{3.285753657755655, -2.3681294933425376, 0.46449024233003106}, {2.3465413258596377, -1.7097828382687081, 0.42323551169305323}}},
	"cans": {repeat: true, steps: []coefficients{{8.4703, -25.1081, 18.6293}, {4.1828, -3.1087, 0.5806}, {3.9619, -2.9541, 0.5630},
		{3.2866, -2.4647, 0.5074}, {2.2737, -1.6447, 0.4162}}},
	"aol": {steps: []coefficients{{4.0098, -7.0585, 2.4635}, {3.4585, -5.5479, 2.5959}, {2.7573, -3.2939, 1.4254}, {2.7215, -3.0494, 1.3169}}},
	"deepseekv4": {repeat: true, steps: append(slices.Repeat([]coefficients{{3.4445, -4.7750, 2.0315}}, 8),
		slices.Repeat([]coefficients{{2, -1.5, 0.5}}, 2)...)},
	"cubic5": {steps: []coefficients{{3.3656576, -3.3420992, 0}, {2.5744352, -1.4957376, 0}, {2.5368962, -1.4312570, 0},
		{2.4418906, -1.2764040, 0}, {2.2230472, -0.9630650, 0}}},
}

// Coefficients are a, b and c of a set's steps (--muon-coefficient-type); nil: there is no such set.
func Coefficients(name string) (steps [][3]float64) {
	for _, c := range newtonSchulzSets[name].steps {
		steps = append(steps, c)
	}
	return steps
}

// at are the coefficients of step i.
func (s coefficientSet) at(i int) coefficients {
	if s.repeat {
		return s.steps[min(i, len(s.steps)-1)]
	}
	return s.steps[i%len(s.steps)]
}

// scale is the factor of the update of a matrix [out, in].
func (c *MuonConfig) scale(out, in int64) float64 {
	rows, columns := float64(out), float64(in)
	switch c.Scale {
	case ScaleUnitRMS:
		return c.Extra * math.Sqrt(rows/columns)
	case ScaleShape:
		return c.Extra * math.Sqrt(max(1, rows/columns))
	}
	return c.Extra * math.Sqrt(max(rows, columns))
}

// orthogonal reports whether Muon updates a parameter: a matrix, or one of each expert, that is
// not the word embedding or the output layer.
func (o *Optimizer) orthogonal(p *mpu.Param) bool {
	dims := len(p.Global)
	if p.Each != nil {
		dims--
	}
	return o.config.Matrices() && dims == 2 && p.Role != mpu.Vocabulary && !p.Frozen
}

// normEps replaces the norm of a matrix of zeros.
const normEps = 1e-15

// newtonSchulz drives the singular values of x [m, n] f32, contiguous, towards 1, in place:
// x/‖x‖, then steps X ← (aI + bA + cA²)X with A = XXᵀ, or from the right with XᵀX where that
// is the smaller.
func (o *Optimizer) newtonSchulz(x device.Tensor) {
	d, c := o.device, &o.config.Muon
	s := d.Arena.Scope(device.Optimizer)
	defer s.Release()
	stats := s.Alloc(device.F64, device.Stats)
	d.Fill(stats, 0)
	d.GradStats(stats, x, device.Tensor{})
	now := x
	if c.Precision == MuonMedium {
		now = s.Alloc(device.BF16, x.Dims()...)
	}
	set := newtonSchulzSets[c.Coefficients]
	d.Normalize(device.NormalizeArgs{Out: now, X: x, Stats: stats, Eps: normEps, Stretch: float32(cmp.Or(set.stretch, 1)), Plus: float32(set.plus)})
	k := min(x.Shape[0], x.Shape[1])
	gram, square, next := s.Alloc(now.DType, k, k), s.Alloc(now.DType, k, k), s.Like(now)
	for i := range c.Steps {
		o.newtonSchulzStep(next, now, gram, square, set.at(i))
		now, next = next, now
	}
	if now.Data != x.Data {
		d.Copy(x, now)
	}
}

// newtonSchulzStep sets next from now [m, n]; gram and square are space for [k, k], k the
// smaller of the two.
func (o *Optimizer) newtonSchulzStep(next, now, gram, square device.Tensor, c coefficients) {
	d, tall := o.device, now.Shape[0] > now.Shape[1]
	multiply := func(a device.MatmulArgs) {
		if o.exact != nil {
			a.Leaves = 1 // in one order, whatever processor and library there are
		}
		d.Matmul(a)
	}
	if tall {
		multiply(device.MatmulArgs{C: gram, A: now, B: now, TransA: 1})
	} else {
		multiply(device.MatmulArgs{C: gram, A: now, B: now, TransB: 1})
	}
	p := device.PolynomialArgs{Out: gram, X: gram, A: float32(c[0]), B: float32(c[1]), C: float32(c[2])}
	if c[2] != 0 {
		multiply(device.MatmulArgs{C: square, A: gram, B: gram})
		p.Y = square
	}
	d.Polynomial(p)
	if tall {
		multiply(device.MatmulArgs{C: next, A: now, B: gram})
		return
	}
	multiply(device.MatmulArgs{C: next, A: gram, B: now})
}
