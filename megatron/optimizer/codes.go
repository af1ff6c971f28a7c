package optimizer

import (
	"errors"
	"fmt"
	"math"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/internal/nf4"
	"monotron/mpu"
)

// AdamW with moments of 8 bits: those of a tensor are codes, and of each block of device.CodeBlock elements a scale.
// Blocks are cut along the global tensor in row-major order. Every parameter and every shard begins with a block, and a
// layout that cuts within one is refused (CheckBlocks), so that the bits of an update depend on no layout.

// fewestCoded is the elements of a tensor whose moments are codes, at least.
const fewestCoded = 4096

// coded8 is a part's or a segment's moments as codes; none given: they are f32.
type coded8 struct {
	m, v             device.Tensor // u8 [n]
	mScales, vScales device.Tensor // f32 [⌈n/256⌉]
}

// slice are the codes of elements [from, from+n), from a multiple of a block.
func (c coded8) slice(from, n int64) coded8 {
	if !c.m.Given() {
		return c
	}
	block, blocks := from/device.CodeBlock, blocksOf(n)
	return coded8{c.m.Slice(0, from, n), c.v.Slice(0, from, n), c.mScales.Slice(0, block, blocks), c.vScales.Slice(0, block, blocks)}
}

func blocksOf(n int64) int64 { return (n + device.CodeBlock - 1) / device.CodeBlock }

// coded reports whether a parameter's moments are codes: those of large tensors but the embeddings' and the
// output layer's.
func (c *Config) coded(p *mpu.Param) bool {
	n := int64(1)
	for _, size := range p.Tensors()[0].Global {
		n *= size
	}
	return c.Kind == Adam8 && !p.Frozen && p.Role != mpu.Vocabulary && p.Name != positionTable && n >= fewestCoded
}

// ErrCut is in the chain of CheckBlocks' error.
var ErrCut = errors.New("the layout splits blocks")

// CheckBlocks checks that each block of codes is on one rank: the error names a parameter of which this rank
// has a part of a block, and what to change.
func CheckBlocks(c *Config, params []*mpu.Param) error {
	for _, p := range params {
		if len(p.Pieces) == 0 || !c.coded(p) {
			continue
		}
		for _, t := range p.Tensors() {
			if !inBlocks(t) {
				return exitcode.Errorf(exitcode.Usage, "--optimizer %s: %w of %d elements: a rank has the part %[6]v of %[4]s %[5]v; %[7]s",
					c.Kind, ErrCut, device.CodeBlock, t.Name, t.Global, t.Pieces[0].Size, legalCut(p, t))
			}
		}
	}
	return nil
}

// inBlocks reports whether the pieces of a tensor begin and end with blocks, in it and in the local buffer.
func inBlocks(t mpu.Stored) bool {
	total, fits := mpu.Piece{Size: t.Global}.Len(), true
	for _, piece := range t.Pieces {
		piece.Runs(t.Global, func(at, local, n int64) {
			fits = fits && at%device.CodeBlock == 0 && local%device.CodeBlock == 0 && (n%device.CodeBlock == 0 || at+n == total)
		})
	}
	return fits
}

// legalCut says over how many ranks the tensor can be cut as it is cut now.
func legalCut(p *mpu.Param, t mpu.Stored) string {
	flag := "--tensor-model-parallel-size"
	if p.Family == mpu.Experts {
		flag = "--expert-tensor-parallel-size"
	}
	last := len(t.Global) - 1
	width, inner := t.Global[last], int64(1) // of the cut dimension, elements of each
	if piece := t.Pieces[0]; piece.Size[last] == width && last > 0 {
		width, inner = t.Global[0], width
	}
	local := int64(0)
	for _, piece := range t.Pieces {
		local += piece.Len()
	}
	ranks := max(1, mpu.Piece{Size: t.Global}.Len()/local)
	for n := ranks - 1; n > 1; n-- {
		if width%n == 0 && width/n*inner%device.CodeBlock == 0 {
			return fmt.Sprintf("use %s %d", flag, n)
		}
	}
	return fmt.Sprintf("use %s 1, or sizes for which each rank has a multiple of %d elements", flag, device.CodeBlock)
}

// codeStrips are the strips of codes and scales; nil: no part is coded.
type codeStrips struct{ m, v, mScales, vScales *strip }

func (o *Optimizer) codeStrips() *codeStrips {
	if o.config.Kind != Adam8 {
		return nil
	}
	coded := func(p part) bool { return p.coded }
	elements := func(b *bucket) int64 { return b.elements(coded) }
	blocks := func(b *bucket) int64 { return blocksOf(b.elements(coded)) }
	make := func(dtype device.DType, share func(*bucket) int64) *strip {
		return o.strip(device.Optimizer, dtype, share)
	}
	return &codeStrips{make(device.U8, elements), make(device.U8, elements), make(device.F32, blocks), make(device.F32, blocks)}
}

// next are the moments of n elements, a multiple of a block.
func (s *codeStrips) next(n int64) coded8 {
	return coded8{s.m.next(n), s.v.next(n), s.mScales.next(blocksOf(n)), s.vScales.next(blocksOf(n))}
}

// coder is what updates of coded moments read in addition to the step's hypers.
type coder struct {
	maps, nearest device.Tensor    // f32 [2, 256] and u8 [2, 65536]: the values of codes, and codes of values, of M and V
	rates         [2]device.Tensor // f64 [device.Rates]: of all parameters, and of those with a rate of their own
}

// newCoder makes the tables; nil: no moments are coded.
func (o *Optimizer) newCoder() *coder {
	if o.config.Kind != Adam8 {
		return nil
	}
	a := o.device.Arena
	c := &coder{maps: a.Alloc(device.Optimizer, device.F32, 2, 256), nearest: a.Alloc(device.Optimizer, device.U8, 2, device.NearestCodes)}
	for i := range c.rates {
		c.rates[i] = a.Zeroed(device.Optimizer, device.F64, device.Rates)
	}
	device.WriteSlice(o.device, c.maps, append(nf4.Dynamic[:], nf4.DynamicUnsigned[:]...))
	device.WriteSlice(o.device, c.nearest, nf4.NearestCodes())
	return c
}

// prepareRates gives the device the rates of step t in the digits that bitsandbytes has them in.
func (o *Optimizer) prepareRates(t float64, lr, apart, decay float64) {
	c := &o.config
	for i, lr := range []float64{lr, apart} {
		rates := [device.Rates]float64{device.RateLR: lr, device.RateWeightDecay: decay, device.RateCorrection1: 1 - math.Pow(c.AdamBeta1, t),
			device.RateCorrection2: math.Sqrt(1 - math.Pow(c.AdamBeta2, t))}
		device.WriteSlice(o.device, o.coder.rates[i], rates[:])
	}
}

// updateCoded makes a step of a run whose moments are codes.
func (o *Optimizer) updateCoded(r *run, model device.Tensor) {
	rates := o.coder.rates[0]
	if r.apart {
		rates = o.coder.rates[1]
	}
	o.device.AdamW8(device.AdamW8Args{Param: r.main, Grad: r.grad, MCodes: r.codes.m, VCodes: r.codes.v, MScales: r.codes.mScales, VScales: r.codes.vScales, Model: model,
		Hyper: r.hyper, Rates: rates, Segments: r.segments, Mults: r.mults, Maps: o.coder.maps, Nearest: o.coder.nearest,
		Beta1: o.config.AdamBeta1, Beta2: o.config.AdamBeta2, Eps: o.config.AdamEps})
}

// storedCodes adds what a checkpoint keeps of coded moments.
func (s *segment) storedCodes(all []mpu.Stored, write bool) []mpu.Stored {
	if !s.codes.m.Given() {
		return all
	}
	all = s.stored(all, StoredCodesM, s.codes.m, write)
	all = s.storedScales(all, StoredScalesM, s.codes.mScales, write)
	all = s.stored(all, StoredCodesV, s.codes.v, write)
	return s.storedScales(all, StoredScalesV, s.codes.vScales, write)
}

// storedScales adds the scales of the segment's blocks: a tensor of as many dimensions as the parameter's where its rows
// are blocks, else of one.
func (s *segment) storedScales(all []mpu.Stored, prefix string, scales device.Tensor, write bool) []mpu.Stored {
	for _, t := range s.param.Tensors() {
		shape, pieces := scalesOf(t)
		if pieces = mpu.Stretch(pieces, s.from/device.CodeBlock, scales.Len()); len(pieces) > 0 {
			all = append(all, mpu.Stored{Name: prefix + t.Name, Global: shape, Tensor: scales, Pieces: pieces, Write: write})
		}
	}
	return all
}

// scalesOf is the shape of a tensor's scales, and which of them its pieces have.
func scalesOf(t mpu.Stored) (shape []int64, pieces []mpu.Piece) {
	last := len(t.Global) - 1
	if t.Global[last]%device.CodeBlock != 0 {
		for _, piece := range t.Pieces {
			piece.Runs(t.Global, func(at, local, n int64) {
				pieces = append(pieces, mpu.Piece{From: []int64{at / device.CodeBlock}, Size: []int64{blocksOf(n)}, Local: local / device.CodeBlock})
			})
		}
		return []int64{blocksOf(mpu.Piece{Size: t.Global}.Len())}, pieces
	}
	narrow := func(sizes []int64) []int64 {
		narrowed := append([]int64{}, sizes...)
		narrowed[last] /= device.CodeBlock
		return narrowed
	}
	for _, piece := range t.Pieces {
		pieces = append(pieces, mpu.Piece{From: narrow(piece.From), Size: narrow(piece.Size), Local: piece.Local / device.CodeBlock})
	}
	return narrow(t.Global), pieces
}
