package hf

import (
	"math"
	"regexp"
	"slices"

	"monotron/internal/exitcode"
	"monotron/internal/safetensors"
	"monotron/megatron/checkpoint"
)

// MXFP4 is Config.Quantization of GPT-OSS's experts in 4-bit floats (OCP Microscaling Formats 1.0): 32 neighbours
// along a row of [out, in] share a power of two.
const MXFP4 = "mxfp4"

// Parts of a layer's experts NAME: NAME_blocks U8 [experts, out, in/32, 16] has two codes a byte, the first in the low
// half; NAME_scales U8 [experts, out, in/32] the exponents, plus 127.
const (
	mxfp4Blocks = "_blocks"
	mxfp4Scales = "_scales"
	mxfp4Group  = 32
)

var ofMXFP4 = regexp.MustCompile(`^(.*\.mlp\.experts\.(?:gate_up_proj|down_proj))(_blocks|_scales)$`)

// fp4Values are what a code stands for, without its scale: E2M1.
var fp4Values = [16]float32{0, 0.5, 1, 1.5, 2, 3, 4, 6, float32(math.Copysign(0, -1)), -0.5, -1, -1.5, -2, -3, -4, -6}

// mxfp4 shows experts as what their codes stand for, [experts, out, in], in a type of floats. Codes and
// exponents are read with the elements that are asked for; nothing stays in memory.
type mxfp4 struct {
	Files
	weights map[string]safetensors.Info
}

// newMXFP4 checks that the parts of each weight fit each other. mp becomes the mapping of such files: their
// weights are not transposed.
func newMXFP4(files Files, mp *Mapping, dtype string) (*mxfp4, error) {
	q := &mxfp4{Files: files, weights: map[string]safetensors.Info{}}
	mp.byRow()
	for _, part := range files.Names() {
		found := ofMXFP4.FindStringSubmatch(part)
		if found == nil || q.weights[found[1]].Name != "" {
			continue
		}
		name := found[1]
		blocks, ok1 := files.Info(name + mxfp4Blocks)
		scales, ok2 := files.Info(name + mxfp4Scales)
		bad := func(format string, args ...any) (*mxfp4, error) {
			return nil, exitcode.Errorf(exitcode.BadData, "%s: "+format, append([]any{files.Where(part)}, args...)...)
		}
		// Codes of 32 neighbours in 16 bytes, and an exponent for them.
		switch shape := blocks.Shape; {
		case !ok1 || !ok2:
			return bad("tensor %q is incomplete: an MXFP4 weight consists of %s%s and %s%s", part, name, mxfp4Blocks, name, mxfp4Scales)
		case blocks.DType != "U8" || len(shape) != 4 || shape[3] != mxfp4Group/2 || elements(shape) < 1:
			return bad("tensor %q is %s %v; it must be U8 [experts, out, in/%d, %d]", blocks.Name, blocks.DType, shape, mxfp4Group, mxfp4Group/2)
		case scales.DType != "U8" || !slices.Equal(scales.Shape, shape[:3]):
			return bad("tensor %q is %s %v; to match %q it must be U8 %v", scales.Name, scales.DType, scales.Shape, blocks.Name, shape[:3])
		default:
			full := []int64{shape[0], shape[1], shape[2] * mxfp4Group}
			q.weights[name] = safetensors.Info{Name: name, DType: dtype, Shape: full, Bytes: elements(full) * checkpoint.Width(dtype)}
		}
	}
	return q, nil
}

// byRow makes the mapping that of files whose fused weights are [experts, out, in].
func (mp *Mapping) byRow() {
	for i := range mp.rules {
		for k := range mp.rules[i].sources {
			src := &mp.rules[i].sources[k]
			full, _, slab := slabOf(src.Name)
			if !slab || !src.Transposed {
				continue
			}
			src.Transposed, src.Shape = false, slices.Clone(src.Shape)
			slices.Reverse(src.Shape)
			mp.slabs[full] = append([]int64{mp.slabs[full][0]}, src.Shape...)
		}
	}
}

// Names has weights in place of their parts.
func (q *mxfp4) Names() (names []string) {
	for _, name := range q.Files.Names() {
		if found := ofMXFP4.FindStringSubmatch(name); found == nil {
			names = append(names, name)
		} else if found[2] == mxfp4Blocks {
			names = append(names, found[1])
		}
	}
	return names
}

// Info is that of the weight as floats.
func (q *mxfp4) Info(name string) (safetensors.Info, bool) {
	if info, ok := q.weights[name]; ok {
		return info, true
	}
	return q.Files.Info(name)
}

// Where is the path of the file.
func (q *mxfp4) Where(name string) string {
	if _, ok := q.weights[name]; ok {
		name += mxfp4Blocks
	}
	return q.Files.Where(name)
}

// ReadAt fills dst with complete elements.
func (q *mxfp4) ReadAt(name string, dst []byte, at int64) error {
	info, ok := q.weights[name]
	if !ok {
		return q.Files.ReadAt(name, dst, at)
	}
	width := checkpoint.Width(info.DType)
	if at%width != 0 || int64(len(dst))%width != 0 || at < 0 || at+int64(len(dst)) > info.Bytes {
		return exitcode.Errorf(exitcode.Internal, "internal error: tensor %q: %d bytes from byte %d do not contain complete elements of type %s; report this, and include the command line", name, len(dst), at, info.DType)
	}
	from, to := at/width, (at+int64(len(dst)))/width
	if from == to {
		return nil
	}
	// The groups that hold these elements, complete.
	first, last := from/mxfp4Group, (to+mxfp4Group-1)/mxfp4Group
	codes, exponents := make([]byte, (last-first)*mxfp4Group/2), make([]byte, last-first)
	if err := q.Files.ReadAt(name+mxfp4Blocks, codes, first*mxfp4Group/2); err != nil {
		return err
	}
	if err := q.Files.ReadAt(name+mxfp4Scales, exponents, first); err != nil {
		return err
	}
	values := make([]float32, (last-first)*mxfp4Group)
	for i, exponent := range exponents {
		if exponent == 255 {
			return exitcode.Errorf(exitcode.BadData, "%s: tensor %q: exponent %d is 255, the code of NaN", q.Where(name), name+mxfp4Scales, first+int64(i))
		}
		group, scale := values[i*mxfp4Group:][:mxfp4Group], float32(safetensors.FromE8M0(exponent))
		for k, code := range codes[i*mxfp4Group/2:][:mxfp4Group/2] {
			group[2*k], group[2*k+1] = fp4Values[code&15]*scale, fp4Values[code>>4]*scale
		}
	}
	_, _ = safetensors.Encode(dst[:0], info.DType, values[from-first*mxfp4Group:to-first*mxfp4Group]) // a type of weights
	return nil
}
