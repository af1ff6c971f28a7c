package nf4

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"monotron/internal/safetensors"
)

// Suffixes of the tensors that a file keeps of a weight of that name, in addition to the codes,
// which have the name itself.
const (
	absmaxName       = ".absmax"
	mapName          = ".quant_map"
	nestedAbsmaxName = ".nested_absmax"
	nestedMapName    = ".nested_quant_map"
	stateName        = ".quant_state.bitsandbytes__nf4"
)

// fp4Name is the state of the other 4-bit type.
const fp4Name = ".quant_state.bitsandbytes__fp4"

// State is what the JSON of a weight says.
type State struct {
	QuantType       string   `json:"quant_type"`
	BlockSize       int64    `json:"blocksize"`
	DType           string   `json:"dtype"` // of the weight, as PyTorch spells it
	Shape           []int64  `json:"shape"`
	NestedBlockSize int64    `json:"nested_blocksize,omitempty"`
	NestedDType     string   `json:"nested_dtype,omitempty"`
	NestedOffset    *float64 `json:"nested_offset,omitempty"` // none: scales are f32
}

// dtypes are safetensors' names of PyTorch's.
var dtypes = map[string]string{"float32": "F32", "bfloat16": "BF16", "float16": "F16"}

// DTypeName is PyTorch's name of a type that safetensors spells dtype; "": weights do not have it.
func DTypeName(dtype string) string {
	for theirs, ours := range dtypes {
		if ours == dtype {
			return theirs
		}
	}
	return ""
}

// Parts are the tensors that a file keeps of a weight of that name, type and shape.
func Parts(name, dtype string, shape []int64, double bool) []safetensors.Info {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	blocks := (n + Block - 1) / Block
	state := safetensors.Info{Name: name + stateName, DType: "U8", Shape: []int64{int64(len(stateOf(dtype, shape, double, 0)))}}
	parts := []safetensors.Info{{Name: name, DType: "U8", Shape: []int64{(n + 1) / 2, 1}}, {Name: name + absmaxName, DType: "F32", Shape: []int64{blocks}},
		{Name: name + mapName, DType: "F32", Shape: []int64{int64(len(Table))}}}
	if double {
		parts[1].DType = "U8"
		parts = append(parts, safetensors.Info{Name: name + nestedAbsmaxName, DType: "F32", Shape: []int64{(blocks + NestedBlock - 1) / NestedBlock}},
			safetensors.Info{Name: name + nestedMapName, DType: "F32", Shape: []int64{int64(len(Dynamic))}})
	}
	return append(parts, state)
}

// offsetWidth is how many characters the JSON of an offset takes, filled up with spaces: the
// length of a tensor is known before its contents.
const offsetWidth = 24

// stateOf is a weight's JSON.
func stateOf(dtype string, shape []int64, double bool, offset float32) []byte {
	s := State{QuantType: "nf4", BlockSize: Block, DType: DTypeName(dtype), Shape: shape}
	if double {
		wide := float64(offset)
		s.NestedBlockSize, s.NestedDType, s.NestedOffset = NestedBlock, "float32", &wide
	}
	text, err := json.Marshal(s)
	if err != nil || !double {
		return text // finite numbers give no error
	}
	digits, _ := json.Marshal(float64(offset))
	return append(text, strings.Repeat(" ", offsetWidth-len(digits))...)
}

// Encode is the bytes of one of Parts of a weight.
func (q *Quantized) Encode(part, name, dtype string, shape []int64) ([]byte, error) {
	switch strings.TrimPrefix(part, name) {
	case "":
		return q.Packed, nil
	case absmaxName:
		if q.Absmax == nil {
			return q.Codes, nil
		}
		return floats(q.Absmax), nil
	case mapName:
		return floats(Table[:]), nil
	case nestedAbsmaxName:
		return floats(q.NestedAbsmax), nil
	case nestedMapName:
		return floats(Dynamic[:]), nil
	case stateName:
		return stateOf(dtype, shape, q.Absmax == nil, q.Offset), nil
	}
	return nil, fmt.Errorf("%q is not a part of %q", part, name)
}

func floats(x []float32) []byte {
	out := make([]byte, 0, 4*len(x))
	for _, v := range x {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
	}
	return out
}

// Files are the tensors of a file or folder.
type Files interface {
	Names() []string
	Info(name string) (safetensors.Info, bool)
	ReadAt(name string, dst []byte, at int64) error
}

// PartOf reports whether a tensor is a part of a quantised weight, other than its codes, and of which.
func PartOf(name string) (weight string, is bool) {
	for _, suffix := range []string{absmaxName, mapName, nestedAbsmaxName, nestedMapName, stateName, fp4Name} {
		if weight, is = strings.CutSuffix(name, suffix); is {
			return weight, true
		}
	}
	return "", false
}

// Read reads a weight's scales and checks that all its parts fit each other; the codes stay in
// the file. dtype is the weight's, as safetensors spells it.
func Read(f Files, name string) (q *Quantized, dtype string, shape []int64, err error) {
	if _, fp4 := f.Info(name + fp4Name); fp4 {
		return nil, "", nil, fmt.Errorf("tensor %q is quantized to FP4, which is not supported; convert it to float first (transformers: model.dequantize())", name)
	}
	raw, err := read(f, name+stateName, "U8")
	if err != nil {
		return nil, "", nil, err
	}
	var s State
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, "", nil, fmt.Errorf("the bytes of tensor %q are not JSON: %w", name+stateName, err)
	}
	double := s.NestedOffset != nil
	n, ok := s.elements()
	if dtype = dtypes[s.DType]; !ok || dtype == "" || s.QuantType != "nf4" || s.BlockSize != Block || double && (s.NestedBlockSize != NestedBlock || s.NestedDType != "float32") {
		return nil, "", nil, fmt.Errorf("tensor %q: the quantization %s is not supported; blocks must have %d values, nested blocks %d, and the type must be nf4 of float32, bfloat16 or float16", name, raw, Block, NestedBlock)
	}
	if q, err = readParts(f, name, n, double); err != nil {
		return nil, "", nil, err
	}
	if double {
		q.Offset = float32(*s.NestedOffset)
	}
	return q, dtype, s.Shape, nil
}

// elements of a matrix of some size that a file can have.
func (s *State) elements() (n int64, ok bool) {
	n = 1
	for _, d := range s.Shape {
		if d < 1 || n > math.MaxInt32*16/d {
			return 0, false
		}
		n *= d
	}
	return n, len(s.Shape) == 2
}

// readParts reads the scales of n elements.
func readParts(f Files, name string, n int64, double bool) (*Quantized, error) {
	q := &Quantized{}
	// The first error stays; after it nothing more is read.
	var err error
	take := func(part, dtype string, n int64) (raw []byte) {
		if err == nil {
			if raw, err = read(f, name+part, dtype); err == nil && int64(len(raw)) != n {
				err = fmt.Errorf("tensor %q has %d bytes, but the shape of the quantized weight requires %d", name+part, len(raw), n)
			}
		}
		return raw
	}
	table := func(part string, want []float32) {
		for i, v := range decoded(take(part, "F32", int64(4*len(want)))) {
			if v != want[i] && err == nil {
				err = fmt.Errorf("tensor %q does not have the values of bitsandbytes' table", name+part)
			}
		}
	}
	// Codes of 4 bits, two a byte.
	blocks := (n + Block - 1) / Block
	if info, _ := f.Info(name); info.DType != "U8" || info.Bytes != (n+1)/2 {
		return nil, fmt.Errorf("tensor %q has %d bytes of %s, but the 4-bit codes for the shape of the weight are %d bytes of U8", name, info.Bytes, info.DType, (n+1)/2)
	}
	// A scale a block: f32, or with double quantisation 8-bit codes and their own scales.
	table(mapName, Table[:])
	if !double {
		q.Absmax = decoded(take(absmaxName, "F32", 4*blocks))
		return q, err
	}
	q.Codes = take(absmaxName, "U8", blocks)
	table(nestedMapName, Dynamic[:])
	q.NestedAbsmax = decoded(take(nestedAbsmaxName, "F32", 4*((blocks+NestedBlock-1)/NestedBlock)))
	return q, err
}

func read(f Files, name, dtype string) ([]byte, error) {
	info, ok := f.Info(name)
	if !ok {
		return nil, fmt.Errorf("tensor %q is missing", name)
	}
	if info.DType != dtype {
		return nil, fmt.Errorf("tensor %q has the dtype %s; it must be %s", name, info.DType, dtype)
	}
	raw := make([]byte, info.Bytes)
	return raw, f.ReadAt(name, raw, 0)
}

func decoded(raw []byte) []float32 {
	out := make([]float32, len(raw)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return out
}
