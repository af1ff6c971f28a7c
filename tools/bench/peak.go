package bench

import (
	"cmp"
	"slices"
	"time"

	"monotron/csrc/device"
	"monotron/megatron/spec"
)

// effort is how much is measured.
type effort struct {
	cube    int64         // side of the product that no model has
	product time.Duration // for each product
	hold    time.Duration // for each of the fastest, before and after the steps
	copied  int64         // bytes of a copy
	steps   time.Duration // of steps, where nobody says how many
}

// cubeOfGPU is large enough that a product fills a GPU.
const cubeOfGPU = 8192

var full = effort{cube: 2048, product: 150 * time.Millisecond, hold: 1200 * time.Millisecond, copied: 256 << 20, steps: 15 * time.Second}

// peaks times products.
type peaks struct {
	effort   effort
	device   *device.Device
	products []device.Product
	found    map[device.DType][]device.Speed // as products; sustained of the fastest only
	library  []speed                         // of the same products, where training does not use it
	copies   float64
	// instructions in registers: the best runs of a thread alone and of all together
	instructions    *device.Instructions
	alone, together float64
}

// instructionRuns at the peak of instructions, before the steps and after them.
const instructionRuns = 8

// reserved is how many products of a dtype, the fastest in a burst, are timed for long
// in addition to the first one, the cube.
const reserved = 3

// products are the model's own, three for each linear (forward, gradient of the
// input, gradient of the weight), the head's in its chunks of rows, and a cube.
func products(m *spec.Model, batch, seq, cube, headRows int64) []device.Product {
	tokens, h := batch*seq, int64(m.HiddenSize)
	list := []device.Product{{M: cube, N: cube, K: cube}}
	linear := func(rows, out, in int64, wide bool) {
		for _, p := range []device.Product{
			{M: rows, N: out, K: in, TransB: true, Wide: wide}, {M: rows, N: in, K: out}, {M: out, N: in, K: rows, TransA: true, Accumulate: true},
		} {
			if !slices.Contains(list, p) {
				list = append(list, p)
			}
		}
	}
	linear(tokens, int64(m.QKVRows()), h, false)
	linear(tokens, h, int64(m.NumAttentionHeads*m.KVChannels), false)
	linear(tokens, int64(m.FC1Rows()), h, false)
	linear(tokens, h, int64(m.FFNHiddenSize), false)
	linear(min(headRows, tokens), int64(m.PaddedVocabSize), h, true)
	return list
}

// first times every product in each dtype, the fastest for long, and copies.
func (p *peaks) first(dtypes ...device.DType) error {
	p.found = map[device.DType][]device.Speed{}
	for _, dtype := range dtypes {
		if p.found[dtype] != nil {
			continue
		}
		for _, product := range p.products {
			s, err := device.MatmulSpeed(p.device, dtype, product, p.effort.product)
			if err != nil {
				return err
			}
			p.found[dtype] = append(p.found[dtype], device.Speed{Burst: s.Burst})
		}
	}
	return p.again(dtypes...)
}

// again times the fastest products of each dtype for long, and copies.
func (p *peaks) again(dtypes ...device.DType) error {
	for _, dtype := range dtypes {
		speeds := p.found[dtype]
		for _, i := range fastest(speeds) {
			s, err := device.MatmulSpeed(p.device, dtype, p.products[i], p.effort.hold)
			if err != nil {
				return err
			}
			speeds[i] = speeds[i].Better(s)
		}
	}
	p.measureInstructions()
	copies, err := device.CopySpeed(p.device, p.effort.copied, p.effort.product)
	p.copies = max(p.copies, copies)
	return err
}

func (p *peaks) measureInstructions() {
	if p.instructions == nil {
		return
	}
	for range instructionRuns {
		p.alone = max(p.alone, p.instructions.Alone())
		p.together = max(p.together, p.instructions.Together())
	}
}

// fastest are the indices of the products that are timed for long: the first, and
// those that were already, else the fastest in a burst.
func fastest(speeds []device.Speed) []int {
	order := make([]int, 0, len(speeds))
	for i := 1; i < len(speeds); i++ {
		order = append(order, i)
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(speeds[b].Sustained, speeds[a].Sustained), cmp.Compare(speeds[b].Burst, speeds[a].Burst))
	})
	return append([]int{0}, order[:min(reserved, len(order))]...)
}

// speeds are all that was found, dtype by dtype.
func (p *peaks) speeds() (list []speed) {
	for _, dtype := range []device.DType{device.F32, device.BF16, device.F16} {
		for i, s := range p.found[dtype] {
			list = append(list, speed{dtype.String(), p.products[i].String(), s.Burst, s.Sustained, false})
		}
	}
	return append(list, p.library...)
}

func (p *peaks) tell(r *result, own device.DType) {
	r.GEMM, r.CopyBandwidth = p.speeds(), p.copies
	if p.instructions != nil {
		r.Instructions, r.InstructionThread, r.InstructionPeak = p.instructions.Name, p.alone, p.together
	}
	for _, s := range r.GEMM {
		if s.DType == own.String() {
			r.GEMMPeak, r.GEMMBurst = max(r.GEMMPeak, s.Sustained), max(r.GEMMBurst, s.Burst)
		}
		switch s.DType {
		case device.F32.String():
			r.GEMMPeakF32 = max(r.GEMMPeakF32, s.Sustained)
		case device.BF16.String():
			r.GEMMPeakBF16 = max(r.GEMMPeakBF16, s.Sustained)
		}
	}
}
