package hf

import (
	"fmt"
	"math"
	"strings"
	"sync"

	"monotron/internal/exitcode"
	"monotron/internal/safetensors"
)

// FP8 is Config.Quantization of weights in 8-bit floats with a scale for each block of rows and columns, as
// DeepSeek V3's files have them (arXiv 2412.19437, section 3.3), or one for the complete weight: a weight is
// its code times the scale of its block.
const FP8 = "fp8"

// Parts of a weight NAME.weight: NAME.weight_scale_inv has what its codes are multiplied by, whatever the name says;
// NAME.activation_scale scales its input, which is not quantised here.
const (
	fp8Scales     = ".weight_scale_inv"
	fp8Activation = ".activation_scale"
)

// fp8Codes are one a byte, of a weight with so many columns, in blocks of height × width.
type fp8Codes struct {
	table         *[256]float32 // what a code stands for
	scales        []float32     // row by row of blocks
	columns       int64
	height, width int64
}

func (c *fp8Codes) span(from, n int64) (at, bytes int64) { return from, n }

func (c *fp8Codes) values(dst []float32, stored []byte, from int64) {
	across := (c.columns + c.width - 1) / c.width // blocks
	for len(dst) > 0 {
		row, column := from/c.columns, from%c.columns
		n := min(c.width-column%c.width, c.columns-column, int64(len(dst)))
		scale := c.scales[row/c.height*across+column/c.width]
		for i, code := range stored[:n] {
			dst[i] = c.table[code] * scale
		}
		dst, stored, from = dst[n:], stored[n:], from+n
	}
}

// fp8Tables are what the codes of each 8-bit float stand for.
var fp8Tables = sync.OnceValue(func() map[string]*[256]float32 {
	tables := map[string]*[256]float32{}
	for _, dtype := range []string{"F8_E4M3", "F8_E5M2"} {
		var codes [256]byte
		var values [256]float64
		for i := range codes {
			codes[i] = byte(i)
		}
		safetensors.Decode(values[:], dtype, codes[:])
		tables[dtype] = &[256]float32{}
		for i, v := range values {
			tables[dtype][i] = float32(v)
		}
	}
	return tables
})

// readFP8 reads a weight's scales, and checks that its parts fit each other; the codes stay in the file.
func readFP8(f Files, name string, block []int64) (*fp8Codes, []int64, error) {
	module := strings.TrimSuffix(name, ".weight")
	info, ok := f.Info(name)
	if !ok {
		return nil, nil, fmt.Errorf("tensor %q is missing, although its scales %s%s are present", name, module, fp8Scales)
	}
	c := &fp8Codes{table: fp8Tables()[info.DType]}
	if c.table == nil || len(info.Shape) != 2 || info.Shape[0] < 1 || info.Shape[1] < 1 {
		return nil, nil, fmt.Errorf("tensor %q is %s of shape %v; a weight with scales must be F8_E4M3 or F8_E5M2 of shape [out, in]", name, info.DType, info.Shape)
	}
	rows, columns := info.Shape[0], info.Shape[1]
	c.columns, c.height, c.width = columns, rows, columns
	want := []int64{}
	if block != nil {
		c.height, c.width = block[0], block[1]
		want = []int64{(rows + block[0] - 1) / block[0], (columns + block[1] - 1) / block[1]}
	}
	scales, ok := f.Info(module + fp8Scales)
	one := block == nil && elements(scales.Shape) == 1
	if !ok || !one && fmt.Sprint(scales.Shape) != fmt.Sprint(want) {
		return nil, nil, fmt.Errorf("tensor %q: the scales %s%s have the shape %v, but the weight's shape %v and weight_block_size %v require the shape %v",
			name, module, fp8Scales, scales.Shape, info.Shape, block, want)
	}
	var err error
	c.scales, err = fp8ScalesOf(f, module+fp8Scales, scales)
	return c, info.Shape, err
}

// fp8ScalesOf reads scales, which are floats or the exponents of powers of two.
func fp8ScalesOf(f Files, name string, info safetensors.Info) ([]float32, error) {
	raw := make([]byte, info.Bytes)
	if err := f.ReadAt(name, raw, 0); err != nil {
		return nil, err
	}
	wide := make([]float64, elements(info.Shape))
	switch info.DType {
	case "F32", "BF16", "F16", "F8_E8M0":
		safetensors.Decode(wide, info.DType, raw)
	case "U8": // older files store exponents as integers
		safetensors.Decode(wide, "F8_E8M0", raw)
	default:
		return nil, fmt.Errorf("tensor %q is %s; scales must be F32, BF16 or F16, or exponents in F8_E8M0 or U8", name, info.DType)
	}
	scales := make([]float32, len(wide))
	for i, scale := range wide {
		if scales[i] = float32(scale); !(scale >= 0) || math.IsInf(scale, 0) {
			return nil, fmt.Errorf("tensor %q: scale %d is %g; it must be finite and not negative", name, i, scale)
		}
	}
	return scales, nil
}

// unscaled refuses 8-bit floats without scales.
func (d *dequantized) unscaled() error {
	for _, name := range d.Names() {
		if info, _ := d.Files.Info(name); d.weights[name] == nil && fp8Tables()[info.DType] != nil {
			return exitcode.Errorf(exitcode.BadData, "%s: tensor %q is %s, but no file of the folder has its scales %s%s", d.Where(name), name, info.DType, strings.TrimSuffix(name, ".weight"), fp8Scales)
		}
	}
	return nil
}
