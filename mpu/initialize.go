package mpu

import (
	"math"

	"monotron/csrc/device"
	"monotron/internal/elementary"
)

// normals fills out with the numbers first, first+1, .. of the stream of a
// global tensor: element i is standard normal and depends on (key, i) alone.
// Two words make a pair by Box and Muller's method, in float64.
func normals(key uint64, first int64, out []float32, std float64) {
	for i := range out {
		at := uint64(first) + uint64(i)
		if i == 0 || at%4 == 0 {
			fillFour(key, at/4, out[i:], int(at%4), std)
		}
	}
}

// fillFour writes elements skip.. of one Philox block to out.
func fillFour(key, block uint64, out []float32, skip int, std float64) {
	w := device.Philox(key, [4]uint32{uint32(block), uint32(block >> 32), 0, 0})
	var four [4]float64
	four[0], four[1] = boxMuller(w[0], w[1])
	four[2], four[3] = boxMuller(w[2], w[3])
	for j := skip; j < 4 && j-skip < len(out); j++ {
		out[j-skip] = float32(float64(four[j] * std))
	}
}

// boxMuller makes two standard normals of two words. The first maps to (0,1],
// so the logarithm exists; the largest magnitude is 6.66.
func boxMuller(a, b uint32) (float64, float64) {
	radius := math.Sqrt(float64(-2 * elementary.Log((float64(a)+1)/(1<<32))))
	sin, cos := elementary.Sincos(float64(2*math.Pi/(1<<32)) * float64(b))
	return float64(radius * cos), float64(radius * sin)
}

// Initialize writes p's initial values into its value and main parameter tensors. They depend
// on the seed, p's name and the global index of each element, not on the layout.
// In lower precision the main parameter is the rounded value, as in Megatron.
func (p *Param) Initialize(d *device.Device, seed uint64) {
	p.setMain(d, func(t device.Tensor) {
		if d.Counts() {
			return
		}
		host := make([]float32, p.Len())
		for _, piece := range p.Pieces {
			p.fillPiece(host, piece, device.StreamKey(seed, p.Name))
		}
		device.WriteSlice(d, t, host)
	})
}

func (p *Param) fillPiece(host []float32, piece Piece, key uint64) {
	part := host[piece.Local : piece.Local+piece.Len()]
	if p.Init.Kind == InitConstant {
		for i := range part {
			part[i] = float32(p.Init.Value)
		}
		return
	}
	runs, length := piece.runs(p.Global)
	if p.Init.Kind != InitNormal {
		for i, at := range runs {
			p.Init.uniform(key, at, part[int64(i)*length:int64(i+1)*length])
		}
		return
	}
	const batch = 1 << 16
	if len(runs) == 1 && length > batch { // complete rows: one long run, cut for the pool
		from, n := runs[0], (length+batch-1)/batch
		device.SharedPool().Run(n, func(_ int, tile int64) {
			lo, hi := tile*batch, min(length, (tile+1)*batch)
			normals(key, from+lo, part[lo:hi], p.Init.Std)
		})
		return
	}
	device.SharedPool().Run(int64(len(runs)), func(_ int, r int64) {
		normals(key, runs[r], part[r*length:(r+1)*length], p.Init.Std)
	})
}

// uniform fills out with the start of elements first, first+1, ..
func (c Init) uniform(key uint64, first int64, out []float32) {
	if c.Kind == InitUniform {
		uniforms(key, first, out, c.Value)
		return
	}
	if c.Kind == InitTimeStep {
		low, half := elementary.Log(c.Value/100), elementary.Log(10)
		uniforms(key, first, out, half)
		for i, x := range out {
			out[i] = float32(elementary.Log(elementary.Exp(elementary.Exp(low+half+float64(x))) - 1))
		}
		return
	}
	half := float64((c.Value - 1) / 2)
	uniforms(key, first, out, half)
	for i, x := range out {
		out[i] = float32(elementary.Log(1 + half + float64(x)))
	}
}

// uniforms fills out with the numbers first, first+1, .. of a stream, uniform within ±bound; an
// element depends on (key, its number) alone.
func uniforms(key uint64, first int64, out []float32, bound float64) {
	for i := range out {
		at := uint64(first) + uint64(i)
		w := device.Philox(key, [4]uint32{uint32(at / 4), uint32(at / 4 >> 32), 0, 0})
		out[i] = float32(bound * (2*math.Ldexp(float64(w[at%4]>>8), -24) - 1))
	}
}

// Normals fills out with the first initial values that Initialize gives the global tensor of that
// name if they are normally distributed with deviation std.
func Normals(seed uint64, name string, out []float32, std float64) {
	normals(device.StreamKey(seed, name), 0, out, std)
}

// SetMain sets p's values: host is rounded to the value dtype, and Value and the main
// parameter both hold the rounded numbers.
func (p *Param) SetMain(d *device.Device, host []float32) {
	p.setMain(d, func(t device.Tensor) { device.WriteSlice(d, t, host) })
}

func (p *Param) setMain(d *device.Device, write func(f32 device.Tensor)) {
	tmp := d.Arena.Alloc(device.Workspace, device.F32, p.Shape...)
	defer d.Arena.Free(tmp)
	write(tmp)
	d.Copy(p.Value, tmp)
	if p.Main.Given() && p.Main.Data != p.Value.Data {
		d.Copy(p.Main, p.Value)
	}
}
