package torch

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"

	"monotron/internal/exitcode"
	"monotron/internal/pickle"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/megatron"
)

// checkpointVersion is Megatron's, since its QKV rows are by group.
const checkpointVersion = 3.0

const extraState = "._extra_state"

// Write makes one checkpoint of a save folder at path, new or not, in the
// layout that o asks for. With moments for every parameter the optimizer's state
// is written too: in distrib_optim.pt where o.Layout.DistributedOptimizer is set.
func Write(ctx context.Context, path string, src checkpoint.Source, o checkpoint.WriteOptions) (checkpoint.Written, error) {
	contents, err := megatron.NewContents(src)
	if err != nil {
		return checkpoint.Written{}, err
	}
	target, err := megatron.NewTarget(src, o, contents.DType)
	if err != nil {
		return checkpoint.Written{}, err
	}
	t := checkpoint.Tracked{Iteration: target.State.Iteration, Release: o.Release}
	// Everything is decided before a file is written.
	w := &writer{ctx: ctx, Target: target, contents: contents}
	if w.stages, err = megatron.Stages(target.Model, target.Layout); err != nil {
		return checkpoint.Written{}, exitcode.With(exitcode.Usage, err)
	}
	final := filepath.Join(path, t.Folder())
	// A folder gets its name when all ranks' files are in it.
	note, err := checkpoint.Iteration(ctx, path, t, o.OfRun, func(tmp string) error {
		notes, err := w.KeepTokenizer(tmp, final)
		if err != nil {
			return err
		}
		w.done.Notes = notes
		for _, r := range megatron.Ranks(target.Layout) {
			if err := w.rank(tmp, r); err != nil {
				return err
			}
		}
		return nil
	})
	w.done.Path, w.done.Notes = final, append(w.done.Notes, contents.Notes...)
	w.done.AddNote(note)
	return w.done, err
}

type writer struct {
	*megatron.Target
	ctx      context.Context
	contents *megatron.Contents
	stages   [][][]int
	done     checkpoint.Written
}

// rank writes the files of one model-parallel rank.
func (w *writer) rank(dir string, r megatron.Rank) error {
	folder := filepath.Join(dir, r.Folder(w.Layout))
	if err := os.Mkdir(folder, 0o777); err != nil {
		return err
	}
	root := pickle.NewDict("args", w.Namespace(), "checkpoint_version", checkpointVersion, "iteration", w.State.Iteration)
	// A state dict for each chunk; the last of all has the final norm and the output layer.
	var params []megatron.Local
	var chunks [][]megatron.Local
	for c, layers := range w.stages[r.PP] {
		list, err := megatron.Locals(w.Model, w.Layout, r, c, layers)
		if err != nil {
			return exitcode.With(exitcode.Usage, err)
		}
		list = w.Args.StateDict(w.Model, list)
		name := "model"
		if w.Layout.VP > 1 {
			name += string(rune('0' + c))
		}
		root.Set(name, w.stateDict(list, c == len(w.stages[r.PP])-1 && r.PP == w.Layout.PP-1))
		params, chunks = append(params, list...), append(chunks, list)
	}
	// Optimizer and schedule, then what Megatron reads from every file.
	if w.contents.Optimizer {
		root.Set("optimizer", w.optimizer(params))
		if w.Scheduler != nil {
			root.Set("opt_param_scheduler", w.Scheduler)
		}
	}
	root.Set("rng_state", w.RNGOf(r))
	root.Set("num_floating_point_operations_so_far", w.FLOPs())
	if err := w.save(filepath.Join(folder, rankFile), root); err != nil {
		return err
	}
	// Sharded state lies in a file of its own.
	if w.contents.Optimizer && w.Layout.DistributedOptimizer {
		return w.save(filepath.Join(folder, optimizerFile), w.distributed(r, chunks))
	}
	return nil
}

func (w *writer) save(path string, root pickle.Value) error {
	err := checkpoint.WriteFile(path, func(out io.Writer) error {
		name := strings.TrimSuffix(filepath.Base(path), ".pt")
		n, err := pickle.Save(w.ctx, out, name, root)
		w.done.Bytes += n
		return err
	})
	w.done.Files++
	return err
}

// stateDict is a chunk's model, with the empty _extra_state that each parallel
// linear keeps behind its tensors. The last chunk has an output layer, also where
// its weight is the embedding's.
func (w *writer) stateDict(list []megatron.Local, last bool) *pickle.Dict {
	d := &pickle.Dict{Class: "collections.OrderedDict"}
	for i, p := range list {
		d.Pairs = append(d.Pairs, pickle.Pair{Key: p.Key, Value: w.contents.Tensor(checkpoint.Model, p, w.contents.ValueType(p.Name))})
		module := moduleOf(p.Key)
		if p.Linear && (i+1 == len(list) || moduleOf(list[i+1].Key) != module) {
			d.Pairs = append(d.Pairs, pickle.Pair{Key: module + extraState, Value: nil})
		}
	}
	if _, ok := d.Get("output_layer" + extraState); last && !ok {
		d.Pairs = append(d.Pairs, pickle.Pair{Key: "output_layer" + extraState, Value: nil})
	}
	return d
}

func moduleOf(key string) string { return key[:max(0, strings.LastIndexByte(key, '.'))] }

// optimizer is the entry of that name: one, or a list where experts have theirs.
func (w *writer) optimizer(params []megatron.Local) pickle.Value {
	children := &pickle.List{}
	for _, groups := range megatron.Groups(params, w.Layout.EP > 1) {
		children.Items = append(children.Items, w.child(groups))
	}
	if len(children.Items) == 1 {
		return children.Items[0]
	}
	return children
}

func (w *writer) child(groups []megatron.Group) *pickle.Dict {
	state, list, mains := &pickle.Dict{}, &pickle.List{}, &pickle.List{}
	// Parameters are numbered over all groups.
	next := int64(0)
	for _, g := range groups {
		ids, tensors := []int64{}, &pickle.List{}
		for _, p := range g.Params {
			one := &pickle.Dict{}
			for _, k := range kinds {
				one.Set(k.theirs, w.contents.Tensor(k.ours, p, "F32"))
			}
			if step := w.Step(); step != nil {
				one.Set("step", step)
			}
			state.Pairs = append(state.Pairs, pickle.Pair{Key: next, Value: one})
			tensors.Items = append(tensors.Items, w.contents.Tensor(checkpoint.Main, p, "F32"))
			ids = append(ids, next)
			next++
		}
		if w.Layout.DistributedOptimizer {
			ids = nil
		}
		list.Items = append(list.Items, w.ParamGroup(g, ids))
		mains.Items = append(mains.Items, tensors)
	}
	// Nested as Megatron does: by precision and by whether the optimizer is sharded.
	inner := pickle.NewDict("state", state, "param_groups", list)
	var outer *pickle.Dict
	switch {
	case w.Layout.DistributedOptimizer:
		outer = pickle.NewDict("optimizer", pickle.NewDict("param_groups", list))
	case w.contents.DType == "F32":
		return inner
	default:
		outer = pickle.NewDict("optimizer", inner)
	}
	if scaler := w.GradScaler(); scaler != nil && w.contents.DType == "F16" {
		outer.Set("grad_scaler", scaler)
	}
	if !w.Layout.DistributedOptimizer {
		outer.Set("fp32_from_fp16_params", mains)
	}
	return outer
}

// distributed is distrib_optim.pt.
func (w *writer) distributed(r megatron.Rank, chunks [][]megatron.Local) pickle.Value {
	apart := w.Layout.EP > 1
	children := &pickle.List{}
	for _, experts := range []bool{false, true} {
		d := pickle.NewDict("buckets_coalesced", true)
		for c, list := range chunks {
			var params []megatron.Local
			for _, p := range list {
				if (p.Expert && apart) == experts {
					params = append(params, p)
				}
			}
			if len(params) > 0 {
				d.Pairs = append(d.Pairs, pickle.Pair{Key: int64(c), Value: w.buffer(r, c, params)})
			}
		}
		if len(d.Pairs) > 1 {
			children.Items = append(children.Items, d)
		}
	}
	if len(children.Items) == 1 {
		return children.Items[0]
	}
	return children
}

func (w *writer) buffer(r megatron.Rank, chunk int, params []megatron.Local) *pickle.Dict {
	buckets := megatron.Buckets(params, w.Args.BucketSize(r, chunk, params), megatron.SharesTable(w.Model, w.Layout))
	flat := &pickle.Dict{}
	flat.Set("param", w.contents.Flat(checkpoint.Main, buckets))
	for _, k := range kinds {
		flat.Set(k.theirs, w.contents.Flat(k.ours, buckets))
	}
	flat.Set("numel_unpadded", megatron.Numel(buckets))
	return &pickle.Dict{Pairs: []pickle.Pair{{Key: &pickle.Tuple{Items: []pickle.Value{w.paramType(), w.gradType()}}, Value: flat}}}
}

func (w *writer) paramType() pickle.DType {
	return pickle.DType(map[string]string{"F32": "float32", "BF16": "bfloat16", "F16": "float16"}[w.contents.DType])
}

// gradType is that of the gradients' buffer, which names it.
func (w *writer) gradType() pickle.DType {
	if w.contents.DType == "F16" && !w.Args.Bool("accumulate_allreduce_grads_in_fp32") {
		return "float16"
	}
	return "float32"
}
