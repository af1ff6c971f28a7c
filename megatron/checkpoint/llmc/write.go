package llmc

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"monotron/internal/exitcode"
	"monotron/internal/parallelio/blocks"
	"monotron/internal/safetensors"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/hf"
	"monotron/megatron/spec"
	"monotron/mpu"
)

// Write makes a folder with model_<step>.bin and, where src has moments, the
// state of one rank and DONE_<step>. A path that ends in .bin is one model file.
func Write(ctx context.Context, path string, src checkpoint.Source, _ checkpoint.WriteOptions) (checkpoint.Written, error) {
	w, err := newWriting(src)
	if err != nil {
		return checkpoint.Written{}, err
	}
	done := checkpoint.Written{Path: path}
	if strings.HasSuffix(path, ".bin") {
		if w.moments {
			w.notes = append(w.notes, "moments are left out; to write them, name an output without .bin, which becomes a folder with a state file")
		}
		err = checkpoint.Single(path, func() error { return w.model(ctx, path, &done) })
	} else {
		err = checkpoint.Folder(ctx, path, func(tmp string) error { return w.folder(ctx, tmp, &done) })
	}
	if err != nil {
		return checkpoint.Written{}, err
	}
	done.Notes = w.notes
	return done, nil
}

// writing is one checkpoint under way.
type writing struct {
	src     checkpoint.Source
	mapping *hf.Mapping
	layout  *layout
	dtype   string // of the values
	step    int64
	moments bool
	mains   bool
	notes   []string
}

func newWriting(src checkpoint.Source) (*writing, error) {
	m := src.Info().Model
	mp, err := hf.NewLinearMapping(m)
	if err != nil {
		return nil, err
	}
	if err := fits(m); err != nil {
		return nil, err
	}
	infos, _, err := hf.Plan(src, mp)
	if err != nil {
		return nil, err
	}
	w := &writing{src: src, mapping: mp, layout: newLayout(m), step: src.State().Iteration}
	if w.dtype, err = oneType(infos); err != nil {
		return nil, err
	}
	if m.Activation == spec.GeluErf {
		w.notes = append(w.notes, "the model was trained with the exact (erf) GELU; llm.c computes the tanh form, so its results will differ slightly")
	}
	w.findMoments()
	return w, nil
}

// fits refuses what llm.c has no way to say beyond what GPT-2 has.
func fits(m *spec.Model) error {
	switch {
	case m.Activation != spec.GeluTanh && m.Activation != spec.GeluErf:
		return exitcode.Errorf(exitcode.Usage, "llm.c has no %s activation", m.Activation)
	case m.FFNHiddenSize != 4*m.HiddenSize:
		return exitcode.Errorf(exitcode.Usage, "llm.c does not support an MLP of width %d with %d channels; the MLP must be 4 times as wide as the model", m.FFNHiddenSize, m.HiddenSize)
	case m.NormEpsilon != 1e-5:
		return exitcode.Errorf(exitcode.Usage, "llm.c computes norms with epsilon 1e-5, but the model has %g", m.NormEpsilon)
	case !m.Tied:
		return exitcode.Errorf(exitcode.Usage, "llm.c has no separate output layer, but the model has one")
	}
	return nil
}

func oneType(infos []safetensors.Info) (string, error) {
	dtype := infos[0].DType
	for _, info := range infos {
		if info.DType != dtype {
			return "", exitcode.Errorf(exitcode.Usage, "llm.c stores values of one type, but the values to be stored are %s and %s; choose one with --dtype", dtype, info.DType)
		}
	}
	if dtype != "F32" && dtype != "BF16" {
		return "", exitcode.Errorf(exitcode.Usage, "llm.c stores f32 or bf16 values, but the values to be stored are %s; choose f32 or bf16 with --dtype", dtype)
	}
	return dtype, nil
}

// findMoments finds which arrays of the optimizer are complete.
func (w *writing) findMoments() {
	have := map[string]bool{}
	for _, t := range w.src.Tensors() {
		have[t.Name] = t.DType == "F32"
	}
	complete := func(prefix string) bool {
		for _, name := range w.mapping.GlobalNames() {
			if !have[prefix+name] {
				return false
			}
		}
		return true
	}
	w.moments = complete(checkpoint.ExpAvg) && complete(checkpoint.ExpSq)
	w.mains = w.moments && complete(checkpoint.Main)
}

func (w *writing) folder(ctx context.Context, dir string, done *checkpoint.Written) error {
	name := filepath.Join(dir, fmt.Sprintf("model_%08d.bin", w.step))
	if err := w.model(ctx, name, done); err != nil || !w.moments {
		return err
	}
	if err := w.state(ctx, stateName(name, w.step, 0), done); err != nil {
		return err
	}
	_, err := blocks.Write(ctx, filepath.Join(dir, doneName(w.step)), nil)
	return err
}

func (w *writing) model(ctx context.Context, path string, done *checkpoint.Written) error {
	m := w.mapping.Model
	h := map[int]int64{0: modelMagic, 1: versionF32, 2: int64(m.MaxPositions), 3: int64(m.VocabSize), 4: int64(m.NumLayers),
		5: int64(m.NumAttentionHeads), 6: int64(m.HiddenSize), 7: w.layout.vp}
	if w.dtype == "BF16" {
		h[1] = versionBF16
	}
	if m.Activation == spec.GeluErf {
		h[gelu] = geluErf
	}
	list := append([]blocks.Block{header(h)}, w.array(checkpoint.Model, headerBytes, checkpoint.Width(w.dtype))...)
	return w.file(ctx, path, list, done)
}

// state writes what one process without ZeRO writes.
func (w *writing) state(ctx context.Context, path string, done *checkpoint.Written) error {
	h := map[int]int64{0: stateMagic, 1: 1, 2: 1, 10: w.step}
	prefixes := []string{checkpoint.ExpAvg, checkpoint.ExpSq}
	if w.mains {
		h[4] = 1
		prefixes = append(prefixes, checkpoint.Main)
	}
	list := []blocks.Block{header(h)}
	for i, prefix := range prefixes {
		list = append(list, w.array(prefix, headerBytes+4*w.layout.total*int64(i), 4)...)
	}
	return w.file(ctx, path, list, done)
}

func (w *writing) file(ctx context.Context, path string, list []blocks.Block, done *checkpoint.Written) error {
	bytes, err := blocks.Write(ctx, path, list)
	done.Files++
	done.Bytes += bytes
	return err
}

func header(fields map[int]int64) blocks.Block {
	raw := make([]byte, headerBytes)
	for i, v := range fields {
		le.PutUint32(raw[4*i:], uint32(v))
	}
	return blocks.Head(0, raw)
}

// array writes one kind of all parameters, some rows at a time; padding stays zero.
func (w *writing) array(prefix string, offset, width int64) []blocks.Block {
	const blockBytes = 8 << 20
	read := hf.ReadFrom(w.src, prefix)
	var list []blocks.Block
	for _, name := range w.layout.order {
		p := w.layout.spans[name]
		row := checkpoint.Volume(p.shape[1:])
		at := offset + p.at*width
		checkpoint.BoxByRows(checkpoint.Uncut(p.shape), blockBytes/width, func(sub mpu.Piece) {
			first, end := sub.From[0], sub.From[0]+sub.Size[0]
			list = append(list, blocks.Block{Offset: at + first*row*width, Bytes: sub.Len() * width, Fill: func(dst []byte) error {
				return w.mapping.ScatterRows(dst, name, first, end, width, read)
			}})
		})
		if padding := p.width - checkpoint.Volume(p.shape); padding > 0 {
			list = append(list, blocks.Block{Offset: at + checkpoint.Volume(p.shape)*width, Bytes: padding * width, Fill: func(dst []byte) error {
				clear(dst)
				return nil
			}})
		}
	}
	return list
}
