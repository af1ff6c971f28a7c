package bench

import (
	"slices"
	"time"

	"monotron/csrc/device"
	"monotron/megatron/spec"
	"monotron/mpu"
)

// effort is how much is measured.
type effort struct {
	cube    int64         // side of the product that no model has
	product time.Duration // for each product
	again   time.Duration // for the best of each dtype, after the step
	copied  int64         // bytes of a copy
	steps   time.Duration // of steps, where nobody says how many
}

var full = effort{cube: 2048, product: 150 * time.Millisecond, again: 600 * time.Millisecond, copied: 256 << 20, steps: 15 * time.Second}

// peaks times products.
type peaks struct {
	effort   effort
	device   *device.Device
	products []device.Product
	found    map[device.DType][]float64 // as products
	copies   float64
}

// products are the model's own, three for each linear (forward, gradient of the
// input, gradient of the weight), the head's in its chunks of rows, and a cube.
func products(m *spec.Model, batch, seq, cube int64) []device.Product {
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
	linear(min(mpu.HeadRows, tokens), int64(m.PaddedVocabSize), h, true)
	return list
}

// first times every product in f32, bf16 and the run's own dtype, and copies.
func (p *peaks) first(own device.DType) (err error) {
	p.found = map[device.DType][]float64{}
	for _, dtype := range []device.DType{device.F32, device.BF16, own} {
		if p.found[dtype] != nil {
			continue
		}
		for _, product := range p.products {
			speed, err := device.MatmulSpeed(p.device, dtype, product, p.effort.product)
			if err != nil {
				return err
			}
			p.found[dtype] = append(p.found[dtype], speed)
		}
	}
	p.copies, err = device.CopySpeed(p.device, p.effort.copied, p.effort.product)
	return err
}

// again times the best product of each dtype once more.
func (p *peaks) again() error {
	for dtype, speeds := range p.found {
		i := slices.Index(speeds, slices.Max(speeds))
		speed, err := device.MatmulSpeed(p.device, dtype, p.products[i], p.effort.again)
		if err != nil {
			return err
		}
		speeds[i] = max(speeds[i], speed)
	}
	copies, err := device.CopySpeed(p.device, p.effort.copied, p.effort.product)
	p.copies = max(p.copies, copies)
	return err
}

func (p *peaks) tell(r *result, own device.DType) {
	r.GEMMPeak, r.GEMMPeakF32, r.GEMMPeakBF16 = slices.Max(p.found[own]), slices.Max(p.found[device.F32]), slices.Max(p.found[device.BF16])
	r.CopyBandwidth = p.copies
	for _, dtype := range []device.DType{device.F32, device.BF16, device.F16} {
		for i, flops := range p.found[dtype] {
			r.GEMM = append(r.GEMM, speed{dtype.String(), p.products[i].String(), flops})
		}
	}
}
