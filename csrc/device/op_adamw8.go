package device

// AdamW with moments of 8 bits: bitsandbytes' blockwise optimizer (Dettmers et al., arXiv 2110.02861).

// CodeBlock is how many elements share a scale.
const CodeBlock = 256

// NearestCodes is how many equal stretches of [-1, 1] the table of nearest codes has.
const NearestCodes = 1 << 16

// Indexes in the f64 [Rates] that AdamW8 and ScheduleFree read, in more digits than Hyper has.
const (
	RateLR          = iota // learning rate
	RateWeightDecay        // before a group's multiplier
	RateCorrection1        // 1−β1^t
	RateCorrection2        // of AdamW8 √(1−β2^t), of ScheduleFree 1−β2^t
	RateAverage            // weight of the new Z in ScheduleFree's average
	Rates
)

// AdamW8Args: the moments of element i are Maps[0, MCodes[i]]·MScales[i/256] and Maps[1, VCodes[i]]·VScales[i/256].
// In f32, each operation rounded once but for the products and sums in parentheses, which are rounded together:
// g = Grad·GradScale, M = (g·(1−β1) + β1M), V = ((1−β2)g·g + β2V), p = Param·(1 − lr·wd),
// Param = p + (−lr/c1)·M/(√V/c2 + eps). The moments are then rounded again: of each block the new scale is the
// largest magnitude, or 0, and the code of x is Nearest of x/scale, by the stretch whose middle is next to it.
//
// Param and Grad f32 [n] and the codes u8 [n] have equal lengths, MMax and VMax f32 [⌈n/256⌉]; Model, where
// given, receives Param in the value dtype. Segments and Mults are AdamW's; a segment begins at a multiple of
// 256. lr, wd and the corrections c1 and c2 are Rates'; Hyper is read for its gradient scale and whether to
// skip. Maps f32 [2, 256] ascend; Nearest u8 [2, 65536].
//
//op:adamw8
type AdamW8Args struct {
	Param, Grad       Tensor `dtype:"f32"`
	MCodes, VCodes    Tensor `dtype:"u8"`
	MScales, VScales  Tensor `dtype:"f32"`
	Model             Tensor `dtype:"value"`
	Hyper             Tensor `dtype:"f32"`
	Rates             Tensor `dtype:"f64"`
	Segments          Tensor `dtype:"i64"`
	Mults             Tensor `dtype:"f32"`
	Maps              Tensor `dtype:"f32"`
	Nearest           Tensor `dtype:"u8"`
	Beta1, Beta2, Eps float64
}

func (a *AdamW8Args) check() bool {
	blocks := (a.Param.Len() + CodeBlock - 1) / CodeBlock
	return same(a.Grad, a.Param) && same(a.MCodes, a.Param) && same(a.VCodes, a.Param) && shaped(a.MScales, blocks) && shaped(a.VScales, blocks) &&
		sameOrNone(a.Param, a.Model) && shaped(a.Hyper, Hypers) && shaped(a.Rates, Rates) && shaped(a.Maps, 2, 256) && shaped(a.Nearest, 2, NearestCodes) &&
		a.Param.Contiguous() && multiplied(a.Segments, a.Mults)
}

func (a *AdamW8Args) main() Tensor { return a.Param }

func (a *AdamW8Args) work() Work {
	return Work{Bytes: 2*size(a.Param, a.MCodes, a.VCodes, a.MScales, a.VScales) + size(a.Grad, a.Model)}
}
