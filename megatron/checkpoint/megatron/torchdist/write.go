package torchdist

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"monotron/internal/exitcode"
	"monotron/internal/parallelio"
	"monotron/internal/pickle"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/megatron"
	"monotron/mpu"
)

// zipRoot is the folder inside each chunk, as torch.save to a stream names it.
const zipRoot = "archive"

// Write makes one checkpoint of a save folder at path, new or not: a .distcp
// file for each rank of the layout with the boxes it would own. With moments for
// every parameter the optimizer's state is written in the model's shapes, which
// any layout loads: as a distributed optimizer's (fully_reshardable) where
// o.Layout.DistributedOptimizer is set.
func Write(ctx context.Context, path string, src checkpoint.Source, o checkpoint.WriteOptions) (checkpoint.Written, error) {
	contents, err := megatron.NewContents(src)
	if err != nil {
		return checkpoint.Written{}, err
	}
	target, err := megatron.NewTarget(src, o, contents.DType)
	if err != nil {
		return checkpoint.Written{}, err
	}
	if target.Model.NormBehindSum {
		return checkpoint.Written{}, exitcode.Errorf(exitcode.Usage, "torch_dist stores a parameter of all layers in one tensor, but the last layer of a model with --norm-behind-sum has one norm fewer; use the format native, hf or torch")
	}
	t := checkpoint.Tracked{Iteration: target.State.Iteration, Release: o.Release}
	w := &writer{ctx: ctx, Target: target, contents: contents, index: newDescription()}
	if w.stages, err = megatron.Stages(target.Model, target.Layout); err != nil {
		return checkpoint.Written{}, exitcode.With(exitcode.Usage, err)
	}
	w.done.Path = filepath.Join(path, t.Folder())
	note, err := checkpoint.Iteration(ctx, path, t, o.OfRun, w.fill)
	w.done.Notes = append(w.done.Notes, contents.Notes...)
	w.done.AddNote(note)
	return w.done, err
}

type writer struct {
	*megatron.Target
	ctx      context.Context
	contents *megatron.Contents
	stages   [][][]int
	index    *description
	done     checkpoint.Written
}

// fill writes the folder; metadata.json, which calls it complete, comes last.
func (w *writer) fill(dir string) error {
	var err error
	if w.done.Notes, err = w.KeepTokenizer(dir, w.done.Path); err != nil {
		return err
	}
	// A file a rank, then what all share, then where everything is.
	for i, r := range megatron.Ranks(w.Layout) {
		if err := w.rank(dir, i, r); err != nil {
			return err
		}
	}
	if err := w.file(filepath.Join(dir, commonName), func(out io.Writer) error {
		_, err := pickle.Save(w.ctx, out, strings.TrimSuffix(commonName, ".pt"), w.common())
		return err
	}); err != nil {
		return err
	}
	text, err := pickle.Encode(w.index.metadata(filepath.Base(dir)))
	if err != nil {
		return err
	}
	if err := w.file(filepath.Join(dir, checkpoint.DistMetadata), bytesTo(text)); err != nil {
		return err
	}
	marker, err := json.Marshal(map[string]any{"sharded_backend": "torch_dist", "sharded_backend_version": 1, "common_backend": "torch", "common_backend_version": 1})
	if err != nil {
		return exitcode.With(exitcode.Internal, err)
	}
	return w.file(filepath.Join(dir, checkpoint.DistMarker), bytesTo(marker))
}

func bytesTo(b []byte) func(io.Writer) error {
	return func(out io.Writer) error {
		_, err := out.Write(b)
		return err
	}
}

func (w *writer) file(path string, write func(io.Writer) error) error {
	w.done.Files++
	return checkpoint.WriteFile(path, func(out io.Writer) error {
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

// Take is Write of bytes that may be kept.
func (c *counter) Take(b []byte, back func()) error {
	if err := context.Cause(c.ctx); err != nil {
		back()
		return err
	}
	c.n += int64(len(b))
	return parallelio.Take(c.w, b, back)
}

// rank writes the objects and chunks that a rank owns.
func (w *writer) rank(dir string, number int, r megatron.Rank) error {
	f := &distcp{w: w, name: fmt.Sprintf("__%d_0.distcp", number)}
	f.objects(number, r)
	for c, layers := range w.stages[r.PP] {
		list, err := megatron.Locals(w.Model, w.Layout, r, c, layers)
		if err != nil {
			return exitcode.With(exitcode.Usage, err)
		}
		for _, p := range list {
			f.parameter(p)
		}
	}
	return w.file(filepath.Join(dir, f.name), f.write)
}

// distcp is the list of a file's future items.
type distcp struct {
	w     *writer
	name  string
	items []pickle.Value
	tell  []func(location) // called with each item's location when it is written
}

func (f *distcp) item(v pickle.Value, tell func(location)) {
	f.items, f.tell = append(f.items, v), append(f.tell, tell)
}

func (f *distcp) write(out io.Writer) error {
	at := int64(0)
	return pickle.SaveAll(f.w.ctx, out, zipRoot, f.items, func(i int, n int64) {
		f.tell[i](location{f.name, at, n})
		at += n
	})
}

func (f *distcp) object(key string, v pickle.Value) {
	if f.w.index.claim(key, nil) {
		f.item(&pickle.List{Items: []pickle.Value{v}}, func(where location) { f.w.index.object(key, where) })
	}
}

// objects adds everything but tensors: the common state on the first rank, generators
// once a model-parallel rank, the state of Megatron's rerun machine once a rank.
func (f *distcp) objects(number int, r megatron.Rank) {
	w, l := f.w, f.w.Layout
	if number == 0 {
		f.object("common_state/shard_0_1", w.common())
		world := l.TP * l.PP * l.DP
		for i := range world {
			f.object(fmt.Sprintf("rerun_state_machine_state/shard_%d_%d", i, world), rerunShard())
		}
	}
	f.object(fmt.Sprintf("rng_state/shard_%d.%d_%d.%d", r.PP, r.TP, l.PP, l.TP), w.RNGOf(r))
}

// parameter adds the boxes of a parameter that no rank before wrote, of its
// values and of its optimizer's state.
func (f *distcp) parameter(p megatron.Local) {
	w := f.w
	if p.Name == checkpoint.WordEmbeddings && p.Key == checkpoint.OutputLayer {
		return // the last stage's copy
	}
	k := megatron.Split(p.Name)
	f.tensor(checkpoint.Model, "", p, w.contents.ValueType(p.Name))
	if module, weight := strings.CutSuffix(k.Rest, "weight"); p.Linear && weight && k.Rest != checkpoint.OutputLayer {
		k.Rest = module + "_extra_state"
		f.extraState(k)
	}
	if !w.contents.Optimizer || checkpoint.IsBuffer(p.Name) {
		return
	}
	states := []struct{ prefix, key string }{{checkpoint.ExpAvg, "optimizer.state.exp_avg."}, {checkpoint.ExpSq, "optimizer.state.exp_avg_sq."}}
	switch {
	case w.Layout.DistributedOptimizer:
		states = append(states, struct{ prefix, key string }{checkpoint.Main, "optimizer.state.param."})
	case w.contents.DType != "F32":
		states = append(states, struct{ prefix, key string }{checkpoint.Main, "optimizer.state.fp32_param."})
	}
	for _, s := range states {
		f.tensor(s.prefix, s.key, p, "F32")
	}
}

// tensor adds a parameter's boxes of one kind.
func (f *distcp) tensor(kind, key string, p megatron.Local, dtype string) {
	w := f.w
	s := w.index.stacking(w.Model, megatron.Split(p.Name))
	if s.also != s.key {
		w.index.also[key+s.key] = key + s.also
	}
	pieces := p.Pieces
	if checkpoint.IsVocabulary(p.Name) { // its padding is part of the global tensor
		pieces = []mpu.Piece{{From: []int64{p.Shape[0] * p.Rank, 0}, Size: p.Shape}}
		s.global = []int64{int64(w.Model.PaddedVocabSize), p.Shape[1]}
	}
	for _, piece := range pieces {
		corner := append(append([]int64{}, s.at...), piece.From...)
		if !w.index.claim(key+s.key, corner) {
			continue // a replica
		}
		local := p
		if !checkpoint.IsVocabulary(p.Name) {
			local.Cut = megatron.Cut{Shape: piece.Size, Pieces: []mpu.Piece{{From: piece.From, Size: piece.Size}}}
		}
		size := append(s.ones(), piece.Size...)
		global := append(append([]int64{}, s.stack...), s.global...)
		f.item(pickle.NewTensor(dtype, size, w.contents.Tasks(kind, local, dtype)), func(where location) {
			w.index.chunk(key+s.key, dtype, global, chunk{mpu.Piece{From: corner, Size: size}, where})
		})
	}
}

// extraState adds the object that Megatron expects with each linear layer:
// an empty tensor, as Transformer Engine keeps without FP8.
func (f *distcp) extraState(k megatron.Key) {
	s := f.w.index.stacking(f.w.Model, k)
	at, of := make([]string, len(s.at)), make([]string, len(s.at))
	for i := range s.at {
		at[i], of[i] = fmt.Sprint(s.at[i]), fmt.Sprint(s.stack[i])
	}
	if len(at) == 0 {
		at, of = []string{"0"}, []string{"1"}
	}
	f.object(fmt.Sprintf("%s/shard_%s_%s", s.key, strings.Join(at, "."), strings.Join(of, ".")), pickle.Constant("U8", []int64{0}, nil))
}
