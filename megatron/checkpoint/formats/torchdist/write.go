package torchdist

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"monotron/fault"
	"monotron/megatron/checkpoint/formats"
	"monotron/megatron/checkpoint/formats/megatron"
	"monotron/megatron/checkpoint/pickle"
	"monotron/mpu"
)

// zipRoot is the folder inside each chunk, as torch.save to a stream names it.
const zipRoot = "archive"

// Write makes one checkpoint of a save folder at path, new or not: a .distcp
// file for each rank of the layout with the boxes it would own. With moments for
// every parameter the optimizer's state is written in the model's shapes, which
// any layout loads: as a distributed optimizer's (fully_reshardable) where
// o.Layout.DistributedOptimizer is set.
func Write(ctx context.Context, path string, src formats.Source, o formats.WriteOptions) (formats.Written, error) {
	contents, err := megatron.NewContents(src)
	if err != nil {
		return formats.Written{}, err
	}
	target, err := megatron.NewTarget(src, o.Layout, contents.DType)
	if err != nil {
		return formats.Written{}, err
	}
	t := formats.Tracked{Iteration: target.State.Iteration, Release: o.Release}
	w := &writer{ctx: ctx, Target: target, contents: contents, index: newDescription()}
	if w.stages, err = megatron.Stages(target.Model, target.Layout); err != nil {
		return formats.Written{}, fault.With(fault.Usage, err)
	}
	err = formats.Iteration(ctx, path, t, w.fill)
	w.done.Path, w.done.Notes = filepath.Join(path, t.Folder()), contents.Notes
	return w.done, err
}

type writer struct {
	*megatron.Target
	ctx      context.Context
	contents *megatron.Contents
	stages   [][][]int
	index    *description
	done     formats.Written
}

// fill writes the folder; metadata.json, which calls it whole, comes last.
func (w *writer) fill(dir string) error {
	for i, r := range megatron.Ranks(w.Layout) {
		if err := w.rank(dir, i, r); err != nil {
			return err
		}
	}
	if err := w.file(filepath.Join(dir, commonName), func(out io.Writer) error {
		_, err := pickle.Save(out, strings.TrimSuffix(commonName, ".pt"), w.common())
		return err
	}); err != nil {
		return err
	}
	text, err := pickle.Encode(w.index.metadata(filepath.Base(dir)))
	if err != nil {
		return err
	}
	if err := w.file(filepath.Join(dir, formats.DistMetadata), bytesTo(text)); err != nil {
		return err
	}
	marker, err := json.Marshal(map[string]any{"sharded_backend": "torch_dist", "sharded_backend_version": 1, "common_backend": "torch", "common_backend_version": 1})
	if err != nil {
		return fault.With(fault.Internal, err)
	}
	return w.file(filepath.Join(dir, formats.DistMarker), bytesTo(marker))
}

func bytesTo(b []byte) func(io.Writer) error {
	return func(out io.Writer) error {
		_, err := out.Write(b)
		return err
	}
}

func (w *writer) file(path string, write func(io.Writer) error) error {
	w.done.Files++
	return formats.WriteFile(path, func(out io.Writer) error {
		c := &counter{ctx: w.ctx, w: out}
		err := write(c)
		w.done.Bytes += c.n
		return err
	})
}

// counter knows where in a file it is, and stops when its context ends.
type counter struct {
	ctx context.Context
	w   io.Writer
	n   int64
}

func (c *counter) Write(b []byte) (int, error) {
	if err := context.Cause(c.ctx); err != nil {
		return 0, err
	}
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

// rank writes the objects and chunks that a rank owns.
func (w *writer) rank(dir string, number int, r megatron.Rank) error {
	name := fmt.Sprintf("__%d_0.distcp", number)
	return w.file(filepath.Join(dir, name), func(out io.Writer) error {
		f := &distcp{w: w, name: name, out: out.(*counter)}
		if err := f.objects(number, r); err != nil {
			return err
		}
		for c, layers := range w.stages[r.PP] {
			list, err := megatron.Locals(w.Model, w.Layout, r, c, layers)
			if err != nil {
				return fault.With(fault.Usage, err)
			}
			for _, p := range list {
				if err := f.parameter(p); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// distcp is a file under way.
type distcp struct {
	w    *writer
	name string
	out  *counter
}

// item writes one item and tells where it lies.
func (f *distcp) item(v pickle.Value) (place, error) {
	from := f.out.n
	n, err := pickle.Save(f.out, zipRoot, v)
	return place{f.name, from, n}, err
}

func (f *distcp) object(key string, v pickle.Value) error {
	if f.w.index.has(key, nil) {
		return nil
	}
	where, err := f.item(&pickle.List{Items: []pickle.Value{v}})
	if err == nil {
		f.w.index.object(key, where)
	}
	return err
}

// objects are what is no tensor: the common state on the first rank, generators
// once a model-parallel rank, the state of Megatron's rerun machine once a rank.
func (f *distcp) objects(number int, r megatron.Rank) error {
	w, l := f.w, f.w.Layout
	if number == 0 {
		if err := f.object("common_state/shard_0_1", w.common()); err != nil {
			return err
		}
		world := l.TP * l.PP * l.DP
		for i := range world {
			if err := f.object(fmt.Sprintf("rerun_state_machine_state/shard_%d_%d", i, world), rerunShard()); err != nil {
				return err
			}
		}
	}
	return f.object(fmt.Sprintf("rng_state/shard_%d.%d_%d.%d", r.PP, r.TP, l.PP, l.TP), w.RNGOf(r))
}

// parameter writes the boxes of a parameter that no rank before wrote, of its
// values and of its optimizer's state.
func (f *distcp) parameter(p megatron.Local) error {
	w := f.w
	if p.Name == formats.WordEmbeddings && p.Key == formats.OutputLayer {
		return nil // the last stage's copy
	}
	layer, expert, rest := megatron.Split(p.Name)
	if err := f.tensor(formats.Model, "", p, w.contents.DType); err != nil {
		return err
	}
	if p.Linear && layer != megatron.None && strings.HasSuffix(rest, ".weight") {
		if err := f.extraState(layer, expert, strings.TrimSuffix(rest, "weight")); err != nil {
			return err
		}
	}
	if !w.contents.Optimizer {
		return nil
	}
	states := []struct{ prefix, key string }{{formats.ExpAvg, "optimizer.state.exp_avg."}, {formats.ExpSq, "optimizer.state.exp_avg_sq."}}
	switch {
	case w.Layout.DistributedOptimizer:
		states = append(states, struct{ prefix, key string }{formats.Main, "optimizer.state.param."})
	case w.contents.DType != "F32":
		states = append(states, struct{ prefix, key string }{formats.Main, "optimizer.state.fp32_param."})
	}
	for _, s := range states {
		if err := f.tensor(s.prefix, s.key, p, "F32"); err != nil {
			return err
		}
	}
	return nil
}

// tensor writes a parameter's boxes of one kind.
func (f *distcp) tensor(kind, key string, p megatron.Local, dtype string) error {
	w := f.w
	layer, expert, rest := megatron.Split(p.Name)
	s := w.index.stacking(w.Model, layer, expert, rest)
	pieces := p.Pieces
	if formats.IsVocabulary(p.Name) { // its padding is part of the global tensor
		pieces = []mpu.Piece{{From: []int64{p.Shape[0] * p.Rank, 0}, Size: p.Shape}}
		s.global = []int64{int64(w.Model.PaddedVocabSize), p.Shape[1]}
	}
	for _, piece := range pieces {
		corner := append(append([]int64{}, s.at...), piece.From...)
		if w.index.has(key+s.key, corner) {
			continue // a replica
		}
		local := p
		if !formats.IsVocabulary(p.Name) {
			local.Cut = megatron.Cut{Shape: piece.Size, Pieces: []mpu.Piece{{From: piece.From, Size: piece.Size}}}
		}
		size := append(s.ones(), piece.Size...)
		where, err := f.item(pickle.NewTensor(dtype, size, func(out io.Writer) error { return w.contents.Write(out, kind, local, dtype) }))
		if err != nil {
			return err
		}
		w.index.chunk(key+s.key, dtype, append(append([]int64{}, s.stack...), s.global...), chunk{mpu.Piece{From: corner, Size: size}, where})
	}
	return nil
}

// extraState writes the object that Megatron expects beside each linear layer:
// an empty tensor, as Transformer Engine keeps without FP8.
func (f *distcp) extraState(layer, expert int, module string) error {
	s := f.w.index.stacking(f.w.Model, layer, expert, module+"_extra_state")
	at, of := make([]string, len(s.at)), make([]string, len(s.at))
	for i := range s.at {
		at[i], of[i] = fmt.Sprint(s.at[i]), fmt.Sprint(s.stack[i])
	}
	if len(at) == 0 {
		at, of = []string{"0"}, []string{"1"}
	}
	return f.object(fmt.Sprintf("%s/shard_%s_%s", s.key, strings.Join(at, "."), strings.Join(of, ".")), megatron.Constant("U8", []int64{0}, nil))
}
