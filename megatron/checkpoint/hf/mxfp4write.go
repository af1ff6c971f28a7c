package hf

import (
	"math"
	"strings"

	"monotron/internal/exitcode"
	"monotron/internal/safetensors"
	"monotron/megatron/checkpoint"
)

// fours are the experts of an export in MXFP4.
type fours struct {
	of    map[string]string // the weight that a part belongs to
	dtype map[string]string // of a weight's values in the source
	mp    *Mapping          // of weights [experts, out, in]
	read  ReadBox
}

// quantizeExperts replaces experts' weights among w's tensors by their parts.
func (w *writing) quantizeExperts() error {
	m := w.mapping.Model
	if w.mapping.Family != GPTOSS || m.Experts == nil {
		return exitcode.Errorf(exitcode.Usage, "--quantize mxfp4 needs a gpt_oss model, whose experts it quantizes; this is a %s model", w.mapping.Family)
	}
	if m.HiddenSize%mxfp4Group != 0 || m.Experts.FFNHiddenSize%mxfp4Group != 0 {
		return exitcode.Errorf(exitcode.Usage, "--quantize mxfp4: the block size %d must divide the hidden size %d and the experts' width %d", mxfp4Group, m.HiddenSize, m.Experts.FFNHiddenSize)
	}
	straight, err := NewMapping(m, GPTOSS)
	if err != nil {
		return err
	}
	straight.byRow()
	w.fours = &fours{of: map[string]string{}, dtype: map[string]string{}, mp: straight, read: ReadFrom(w.src, checkpoint.Model)}
	// A weight becomes its codes and its exponents.
	var infos []safetensors.Info
	for _, info := range w.infos {
		shape := straight.slabs[info.Name]
		if len(shape) != 3 {
			infos = append(infos, info)
			continue
		}
		blocks, scales := info.Name+mxfp4Blocks, info.Name+mxfp4Scales
		w.fours.of[blocks], w.fours.of[scales], w.fours.dtype[info.Name] = info.Name, info.Name, info.DType
		infos = append(infos, safetensors.Info{Name: blocks, DType: "U8", Shape: []int64{shape[0], shape[1], shape[2] / mxfp4Group, mxfp4Group / 2}},
			safetensors.Info{Name: scales, DType: "U8", Shape: []int64{shape[0], shape[1], shape[2] / mxfp4Group}})
	}
	w.infos = widest(infos)
	return nil
}

// fill writes experts [from, to) of a part, one at a time.
func (z *fours) fill(dst []byte, part string, from, to int64) error {
	name := z.of[part]
	dtype, n := z.dtype[name], elements(z.mp.slabs[name][1:])
	raw, wide := make([]byte, n*checkpoint.Width(dtype)), make([]float64, n)
	each := int64(len(dst)) / max(1, to-from)
	for j := from; j < to; j++ {
		if err := z.mp.ScatterRows(raw, name, j, j+1, checkpoint.Width(dtype), z.read); err != nil {
			return err
		}
		safetensors.Decode(wide, dtype, raw)
		out := dst[(j-from)*each:][:each]
		for i := int64(0); i < n; i += mxfp4Group {
			var group [mxfp4Group]float32
			for k, x := range wide[i:][:mxfp4Group] { // in BF16, as transformers takes them
				group[k] = bf16(float32(x))
				if v := float64(group[k]); math.IsNaN(v) || math.IsInf(v, 0) {
					return exitcode.Errorf(exitcode.BadData, "tensor %q, expert %d: element %d is %g, which MXFP4 cannot represent", name, j, i+int64(k), x)
				}
			}
			codes, exponent := quantizeMXFP4(&group)
			if strings.HasSuffix(part, mxfp4Scales) {
				out[i/mxfp4Group] = exponent
			} else {
				copy(out[i/2:], codes[:])
			}
		}
	}
	return nil
}

func bf16(x float32) float32 { return math.Float32frombits(uint32(safetensors.ToBF16(x)) << 16) }

// quantizeMXFP4 rounds 32 neighbours as OpenAI's converter does (triton_kernels, downcast_to_mxfp): the scale is the
// power of two at or above the largest magnitude by 6, a code the nearest of E2M1, halves away from zero.
func quantizeMXFP4(group *[mxfp4Group]float32) (codes [mxfp4Group / 2]byte, exponent byte) {
	most := float32(0)
	for _, x := range group {
		most = max(most, float32(math.Abs(float64(x))))
	}
	bits := (math.Float32bits(most/6) + 0x007fffff) & 0x7f800000
	by := float32(0)
	if bits != 0 {
		by = 1 / math.Float32frombits(bits)
	}
	for k, x := range group {
		codes[k/2] |= codeE2M1(x*by) << (k % 2 * 4)
	}
	return codes, byte(bits >> 23)
}

// codeE2M1 is the nearest of fp4Values, of two equally near the one farther from zero.
func codeE2M1(x float32) byte {
	size, code := float32(math.Abs(float64(x))), byte(0)
	for i := range 7 {
		if size >= (fp4Values[i]+fp4Values[i+1])/2 {
			code = byte(i + 1)
		}
	}
	return code | byte(math.Float32bits(x)>>28&8)
}
