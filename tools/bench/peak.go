package bench

import (
	"slices"
	"time"

	"monotron/csrc/device"
	"monotron/megatron/spec"
	"monotron/mpu"
)

const (
	productTime = 150 * time.Millisecond // for each product
	againTime   = 600 * time.Millisecond // for the best of each dtype, after the step
	copyBytes   = 256 << 20
	cubeSide    = 2048
)

// peaks times products.
type peaks struct {
	device   *device.Device
	products []device.Product
	found    map[device.DType][]float64 // as products
	copies   float64
}

// products are the model's own, three for each linear (forward, gradient of the
// input, gradient of the weight), the head's in its chunks of rows, and a cube.
func products(m *spec.Model, batch, seq int64) []device.Product {
	tokens, h := batch*seq, int64(m.HiddenSize)
	list := []device.Product{{M: cubeSide, N: cubeSide, K: cubeSide}}
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
			speed, err := device.MatmulSpeed(p.device, dtype, product, productTime)
			if err != nil {
				return err
			}
			p.found[dtype] = append(p.found[dtype], speed)
		}
	}
	p.copies, err = device.CopySpeed(p.device, copyBytes, productTime)
	return err
}

// again times the best product of each dtype once more.
func (p *peaks) again() error {
	for dtype, speeds := range p.found {
		i := slices.Index(speeds, slices.Max(speeds))
		speed, err := device.MatmulSpeed(p.device, dtype, p.products[i], againTime)
		if err != nil {
			return err
		}
		speeds[i] = max(speeds[i], speed)
	}
	copies, err := device.CopySpeed(p.device, copyBytes, productTime)
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
