package hf

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"monotron/internal/exitcode"
	"monotron/internal/nf4"
	"monotron/internal/safetensors"
	"monotron/megatron/checkpoint"
	"monotron/mpu"
)

// NF4 is WriteOptions.Quantization of weights as bitsandbytes quantises them.
const NF4 = "nf4"

// quantizing is the weights of an export that are quantised. They are made one at a time, as
// their parts are asked for: scales before codes, so that each is made twice, and a few are in
// memory.
type quantizing struct {
	kind   string             // NF4 or Int8
	double bool               // with NF4
	of     map[string]*weight // by the names of their parts
	read   ReadBox
	mp     *Mapping

	mu   sync.Mutex
	made []*weight // the last ones, whose codes are in memory
}

// weight is one of them, of the type and shape that it has in the source; a transposed one is
// quantised as [out, in].
type weight struct {
	name, dtype string
	shape       []int64
	transposed  bool
	q           encoded // nil: not in memory
}

// encoded is a weight's codes and scales.
type encoded interface {
	// Encode is a part of the weight as a file has it.
	Encode(part, name, dtype string, shape []int64) ([]byte, error)
	// Dequantize gives what elements from one on stand for.
	Dequantize(dst []float32, from int64)
}

// quantize replaces the linear layers' weights among w's tensors by their parts: all that
// transformers gives to bitsandbytes, which leaves the output layer alone.
func (w *writing) quantize() error {
	if w.mapping.Model.Experts != nil {
		return exitcode.Errorf(exitcode.Usage, "--quantize %s needs a dense model: bitsandbytes does not quantize the tensors of experts in transformers' models", w.o.Quantization)
	}
	w.quantized = &quantizing{kind: w.o.Quantization, double: w.o.DoubleQuant, of: map[string]*weight{}, mp: w.mapping, read: ReadFrom(w.src, checkpoint.Model)}
	var infos []safetensors.Info
	for _, info := range w.infos {
		at, ok := w.mapping.byHF[info.Name]
		if !ok || len(info.Shape) != 2 || !strings.Contains(w.mapping.rules[at[0]].global, ".linear_") {
			infos = append(infos, info)
			continue
		}
		if nf4.DTypeName(info.DType) == "" {
			return exitcode.Errorf(exitcode.BadData, "%s: tensor %q is %s; only F32, BF16 and F16 weights can be quantized; choose one of these types with --dtype", w.src.Info().Path, info.Name, info.DType)
		}
		one := &weight{name: info.Name, dtype: info.DType, shape: info.Shape}
		if one.transposed = w.mapping.rules[at[0]].sources[at[1]].Transposed; one.transposed {
			one.shape = []int64{info.Shape[1], info.Shape[0]}
		}
		for _, part := range w.quantized.parts(one) {
			w.quantized.of[part.Name] = one
			infos = append(infos, part)
		}
	}
	w.infos = widest(infos)
	return nil
}

// widest puts wide elements first, which readers want aligned.
func widest(infos []safetensors.Info) []safetensors.Info {
	slices.SortStableFunc(infos, func(a, b safetensors.Info) int {
		return cmp.Compare(checkpoint.Width(b.DType), checkpoint.Width(a.DType))
	})
	return infos
}

// parts are the tensors that a file keeps of a weight.
func (z *quantizing) parts(one *weight) []safetensors.Info {
	if z.kind == Int8 {
		return int8Parts(one.name, one.shape)
	}
	return nf4.Parts(one.name, one.dtype, one.shape, z.double)
}

// fill writes rows [from, to) of a part.
func (z *quantizing) fill(dst []byte, part string, from, to int64) error {
	one := z.of[part]
	q, err := z.quantized(one)
	if err != nil {
		return err
	}
	raw, err := q.Encode(part, one.name, one.dtype, one.shape)
	if err != nil {
		return exitcode.With(exitcode.Internal, err)
	}
	row := int64(len(dst)) / max(1, to-from)
	if to*row > int64(len(raw)) {
		return exitcode.Errorf(exitcode.Internal, "internal error: tensor %q: for rows up to %d, a buffer of %d bytes has the wrong size; report this, and include the command line", part, to, len(raw))
	}
	copy(dst, raw[from*row:to*row])
	return nil
}

// kept is of how many weights codes and scales stay in memory: those that one fused weight is
// made of, and the next.
const kept = 4

// quantized is a weight's codes and scales.
func (z *quantizing) quantized(one *weight) (encoded, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if one.q != nil {
		return one.q, nil
	}
	values, err := z.values(one)
	if err != nil {
		return nil, err
	}
	if z.kind == Int8 {
		if one.q, err = quantizeInt8(values, one.shape[1]); err != nil {
			one.q = nil
			return nil, exitcode.Errorf(exitcode.BadData, "tensor %q: %w", one.name, err)
		}
	} else {
		one.q = nf4.Quantize(values, z.double)
	}
	if z.made = append(z.made, one); len(z.made) > kept {
		z.made[0].q, z.made = nil, z.made[1:]
	}
	return one.q, nil
}

// values are a weight's, [out, in].
func (z *quantizing) values(one *weight) ([]float32, error) {
	rows, columns := one.shape[0], one.shape[1]
	if one.transposed {
		rows, columns = columns, rows
	}
	raw := make([]byte, rows*columns*checkpoint.Width(one.dtype))
	if err := z.mp.ScatterRows(raw, one.name, 0, rows, checkpoint.Width(one.dtype), z.read); err != nil {
		return nil, err
	}
	wide, out := make([]float64, rows*columns), make([]float32, rows*columns)
	safetensors.Decode(wide, one.dtype, raw)
	for i, v := range wide {
		at := int64(i)
		if one.transposed {
			at = at%columns*rows + at/columns
		}
		out[at] = float32(v)
	}
	return out, nil
}

// quantizationConfig is what transformers 5 writes of such weights.
func quantizationConfig(kind string, double bool) map[string]any {
	four, kind4 := kind == NF4, map[bool]string{true: "nf4", false: "fp4"}[kind == NF4]
	return map[string]any{
		"_load_in_4bit": four, "_load_in_8bit": !four, "load_in_4bit": four, "load_in_8bit": !four, "quant_method": "bitsandbytes",
		"bnb_4bit_compute_dtype": "float32", "bnb_4bit_quant_storage": "uint8", "bnb_4bit_quant_type": kind4, "bnb_4bit_use_double_quant": double,
		// transformers accepts only a float.
		"llm_int8_enable_fp32_cpu_offload": false, "llm_int8_has_fp16_weight": false, "llm_int8_skip_modules": nil, "llm_int8_threshold": json.Number("6.0"),
	}
}

// OfBitsandbytes reports whether weights are already NF4 or Int8.
func OfBitsandbytes(info checkpoint.Info) bool {
	return info.Quantization == NF4 || info.Quantization == Int8
}

// quantizedBase is a checkpoint whose linear layers' weights are read as what their codes
// would stand for.
type quantizedBase struct {
	checkpoint.Source
	z *quantizing
}

// Quantized shows src with the weights of its linear layers rounded to a kind, NF4 or Int8, as WriteOptions of
// that Quantization would store them; one that bitsandbytes has quantised already stays as it is.
func Quantized(src checkpoint.Source, kind string, double bool) (checkpoint.Source, error) {
	if OfBitsandbytes(src.Info()) {
		return src, nil
	}
	w, err := newWriting(src, checkpoint.WriteOptions{Quantization: kind, DoubleQuant: double})
	if err != nil {
		return nil, err
	}
	return &quantizedBase{src, w.quantized}, nil
}

// Read rounds a box of a weight.
func (b *quantizedBase) Read(name string, box mpu.Piece, dst []byte) error {
	global, is := strings.CutPrefix(name, checkpoint.Model)
	i, known := b.z.mp.byGlobal[global]
	if !is || !known {
		return b.Source.Read(name, box, dst)
	}
	one := b.z.of[b.z.mp.rules[i].sources[0].Name]
	if one == nil {
		return b.Source.Read(name, box, dst)
	}
	return b.z.mp.Gather(dst, global, box.From, box.Size, checkpoint.Width(one.dtype), b.z.readAt)
}

// readAt fills dst with elements of a weight after quantising, from byte `at` on.
func (z *quantizing) readAt(name string, dst []byte, at int64) error {
	one := z.of[name]
	q, err := z.quantized(one)
	if err != nil {
		return err
	}
	width, columns := checkpoint.Width(one.dtype), one.shape[1]
	values, from := make([]float32, int64(len(dst))/width), at/width
	if !one.transposed {
		q.Dequantize(values, from)
	}
	for i := range values {
		if theirs := from + int64(i); one.transposed { // [in, out] of [out, in]
			rows := one.shape[0]
			q.Dequantize(values[i:i+1], theirs%rows*columns+theirs/rows)
		}
	}
	_, _ = safetensors.Encode(dst[:0], one.dtype, values) // quantize has checked the type
	return nil
}
