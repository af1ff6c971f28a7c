package torch

import (
	"fmt"
	"path/filepath"

	"monotron/internal/exitcode"
	"monotron/internal/pickle"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/megatron"
)

// addOptimizer adds a rank's main parameters and moments, and what the optimizer says
// of the run's state.
func (s *source) addOptimizer(r *rank, params []local, chunks [][]local) error {
	v, ok := r.root.Get("optimizer")
	if !ok || v == nil {
		return nil
	}
	children := []pickle.Value{v}
	if list, ok := v.(*pickle.List); ok {
		children = list.Items // dense, experts
	}
	for i, child := range children {
		o := optimizer{s: s, r: r, index: i, apart: len(children) > 1, params: chosen(params, len(children) > 1, i > 0)}
		for _, c := range chunks {
			o.chunks = append(o.chunks, chosen(c, o.apart, i > 0))
		}
		if err := o.add(child); err != nil {
			return exitcode.Errorf(codeOr(err, exitcode.BadData), "%s: optimizer: %w", r.path, err)
		}
	}
	return nil
}

// chosen are the parameters of one of two optimizers.
func chosen(params []local, apart, experts bool) []local {
	if !apart {
		return params
	}
	var list []local
	for _, p := range params {
		if p.Expert == experts {
			list = append(list, p)
		}
	}
	return list
}

// optimizer is one of a rank's.
type optimizer struct {
	s      *source
	r      *rank
	index  int
	apart  bool
	params []local
	chunks [][]local
}

func (o *optimizer) add(v pickle.Value) error {
	d, ok := v.(*pickle.Dict)
	if !ok {
		return fmt.Errorf("the state has type %s; it must be a dict", pickle.TypeName(v))
	}
	// The loss scale, of one of them.
	if scaler, ok := d.Get("grad_scaler"); ok && o.s.state.Scaler == nil {
		var err error
		if o.s.state.Scaler, err = megatron.ReadScaler(scaler); err != nil {
			return err
		}
	}
	// The inner optimizer: steps and groups, matched with the parameters.
	inner := d
	if v, ok := d.Get("optimizer"); ok {
		if inner, ok = v.(*pickle.Dict); !ok {
			return fmt.Errorf("the optimizer has type %s; it must be a dict", pickle.TypeName(v))
		}
	}
	if n, ok := megatron.ReadSteps(inner); ok {
		megatron.SetSteps(&o.s.state, n)
	}
	stored, _ := inner.Get("param_groups")
	items, _ := pickle.Items(stored)
	groups, err := megatron.MatchGroups(items, locals(o.params))
	if err != nil {
		return err
	}
	// Main parameters and moments here, or in a file of their own.
	if mains, ok := d.Get("fp32_from_fp16_params"); ok {
		if err := o.mains(groups, mains); err != nil {
			return err
		}
	}
	if state, ok := inner.Get("state"); ok {
		return o.moments(groups, items, state)
	}
	return o.distributed()
}

func locals(params []local) []megatron.Local {
	list := make([]megatron.Local, len(params))
	for i, p := range params {
		list[i] = p.Local
	}
	return list
}

// mains are lists of f32 tensors, one a group.
func (o *optimizer) mains(groups []megatron.Group, v pickle.Value) error {
	lists, _ := pickle.Items(v)
	if len(lists) != len(groups) {
		return fmt.Errorf("fp32_from_fp16_params has %d groups, but param_groups has %d", len(lists), len(groups))
	}
	for i, g := range groups {
		tensors, _ := pickle.Items(lists[i])
		if len(tensors) != len(g.Params) {
			return fmt.Errorf("fp32_from_fp16_params.%d has %d tensors for %d parameters", i, len(tensors), len(g.Params))
		}
		for j, p := range g.Params {
			t, ok := tensors[j].(*pickle.Tensor)
			if !ok {
				return fmt.Errorf("fp32_from_fp16_params.%d.%d has type %s; it must be a tensor", i, j, pickle.TypeName(tensors[j]))
			}
			if err := o.s.add(checkpoint.Main, o.r.path, p, t); err != nil {
				return err
			}
		}
	}
	return nil
}

// kinds are the names of a parameter's states and ours.
var kinds = []struct{ theirs, ours string }{{"exp_avg", checkpoint.ExpAvg}, {"exp_avg_sq", checkpoint.ExpSq}}

// moments are those of a torch optimizer: {id: {exp_avg, exp_avg_sq}}.
func (o *optimizer) moments(groups []megatron.Group, stored []pickle.Value, v pickle.Value) error {
	d, ok := v.(*pickle.Dict)
	if !ok {
		return fmt.Errorf("the state of the optimizer has type %s; it must be a dict", pickle.TypeName(v))
	}
	// torch numbers parameters through all groups.
	byID := map[int64]*pickle.Dict{}
	for _, p := range d.Pairs {
		id, ok := p.Key.(int64)
		one, also := p.Value.(*pickle.Dict)
		if ok && also {
			byID[id] = one
		}
	}
	if len(byID) == 0 {
		return nil // nothing was trained yet
	}
	// Groups were matched with parameters in the same order.
	for i, g := range groups {
		list, _ := stored[i].(*pickle.Dict).Get("params")
		ids, ok := pickle.Ints(list)
		if !ok {
			return fmt.Errorf("param_groups.%d.params is not a list of integers", i)
		}
		for j, p := range g.Params {
			one := byID[ids[j]]
			for _, k := range kinds {
				v, _ := one.Get(k.theirs)
				t, ok := v.(*pickle.Tensor)
				if !ok {
					return fmt.Errorf("parameter %d (%s) has no %s", ids[j], p.Key, k.theirs)
				}
				if err := o.s.add(k.ours, o.r.path, p, t); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// distributed reads distrib_optim.pt: flat buffers of all data-parallel ranks.
func (o *optimizer) distributed() error {
	// The file is next to the model's; weights can be read without it.
	path := filepath.Join(filepath.Dir(o.r.path), optimizerFile)
	f, err := pickle.Open(path)
	if exitcode.CodeOf(err) == exitcode.NoInput {
		o.s.notes = append(o.s.notes, fmt.Sprintf("%s is missing, so there is no optimizer state", path))
		return nil
	}
	if err != nil {
		return err
	}
	o.s.files = append(o.s.files, f)
	// With experts there is a list: the dense parameters' optimizer and the experts'.
	root := f.Root
	if o.apart {
		list, _ := pickle.Items(root)
		if o.index >= len(list) {
			return fmt.Errorf("%s contains %d optimizers; it must contain a list of at least %d", path, len(list), o.index+1)
		}
		if root = list[o.index]; root == nil {
			return nil // another rank's file holds this optimizer's state
		}
	}
	d, ok := root.(*pickle.Dict)
	if !ok {
		return fmt.Errorf("%s contains an object of type %s; it must contain a dict", path, pickle.TypeName(root))
	}
	// One entry per virtual stage.
	if coalesced, _ := d.Get("buckets_coalesced"); coalesced != true {
		return fmt.Errorf("%s does not store each buffer contiguously (buckets_coalesced is not set); Megatron-LM before 0.5 wrote such files: convert the checkpoint with a newer Megatron-LM", path)
	}
	for _, p := range d.Pairs {
		chunk, ok := p.Key.(int64)
		if !ok {
			continue
		}
		if chunk < 0 || int(chunk) >= len(o.chunks) {
			return fmt.Errorf("%s has a buffer for chunk %d, but there are only %d chunks", path, chunk, len(o.chunks))
		}
		if err := o.buffer(path, int(chunk), p.Value); err != nil {
			return fmt.Errorf("%s: buffer %d: %w", path, chunk, err)
		}
	}
	return nil
}

// buffer is {(parameter type, gradient type): {param, exp_avg, exp_avg_sq, numel_unpadded}}.
func (o *optimizer) buffer(path string, chunk int, v pickle.Value) error {
	d, ok := v.(*pickle.Dict)
	if !ok {
		return fmt.Errorf("the buffer has type %s; it must be a dict", pickle.TypeName(v))
	}
	if len(d.Pairs) != 1 {
		return fmt.Errorf("the buffer has parameters of %d types; only buffers with one type are supported", len(d.Pairs))
	}
	flat, ok := d.Pairs[0].Value.(*pickle.Dict)
	if !ok {
		return fmt.Errorf("the entry of %v has type %s; it must be a dict", d.Pairs[0].Key, pickle.TypeName(d.Pairs[0].Value))
	}
	// param is the f32 main parameter: of a model in f32 it is the value, which is read already.
	for _, k := range append(kinds, struct{ theirs, ours string }{"param", checkpoint.Main}) {
		v, _ := flat.Get(k.theirs)
		t, ok := v.(*pickle.Tensor)
		if !ok || len(t.Shape) != 1 || t.DType != "F32" || !t.Contiguous() {
			return fmt.Errorf("%s must be a flat tensor of float32", k.theirs)
		}
		buckets, err := o.s.buckets(o.r.Rank, chunk, locals(o.chunks[chunk]), t.Shape[0])
		if err != nil {
			return err
		}
		if k.ours == checkpoint.Main && len(o.chunks[chunk]) > 0 && o.chunks[chunk][0].tensor.DType == "F32" {
			continue // the values themselves
		}
		// Buckets lie one after the other, in each the parameters at their offsets; elements have 4 bytes.
		at := int64(0)
		for _, b := range buckets {
			for _, p := range b.Params {
				start := at + p.Start
				parts := p.Parts(4, nil, named(path, k.theirs, func(dst []byte, from int64) error { return t.ReadAt(dst, start*4+from) }))
				if err := o.s.addParts(k.ours, path, p.Local, "F32", parts); err != nil {
					return err
				}
			}
			at += b.Numel
		}
	}
	return nil
}

// buckets lays parameters out in a buffer of numel elements.
func (s *source) buckets(r megatron.Rank, chunk int, params []megatron.Local, numel int64) ([]megatron.Bucket, error) {
	shared := megatron.SharesTable(s.model, s.layout)
	one := megatron.Buckets(params, 0, shared)
	if megatron.Numel(one) == numel {
		return one, nil
	}
	several := megatron.Buckets(params, s.args.BucketSize(r, chunk, params), shared)
	if megatron.Numel(several) == numel {
		return several, nil
	}
	return nil, fmt.Errorf("the buffer has %d elements, but the model's parameters need %d in one bucket, or %d in buckets of the size in the checkpoint's args", numel, megatron.Numel(one), megatron.Numel(several))
}
