package nanogpt

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"monotron/internal/exitcode"
	"monotron/internal/pickle"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/hf"
	"monotron/megatron/spec"
)

const (
	fileName = "ckpt.pt"
	compiled = "_orig_mod."
	tanhGelu = "gelu_new"
)

// Open opens a ckpt.pt, or the folder that holds one.
func Open(path string, o checkpoint.OpenOptions) (checkpoint.Source, error) {
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		path = filepath.Join(path, fileName)
	}
	f, err := pickle.Open(path)
	if err != nil {
		return nil, err
	}
	src, err := (&reader{path: path, file: f}).open(o)
	if err != nil {
		_ = f.Close() // opened for reading
		return nil, err
	}
	return src, nil
}

// reader opens one file.
type reader struct {
	path string
	file *pickle.File
	root *pickle.Dict
	bias bool
}

func (r *reader) bad(format string, args ...any) error {
	return exitcode.Errorf(exitcode.BadData, "%s: %w", r.path, fmt.Errorf(format, args...))
}

func (r *reader) open(o checkpoint.OpenOptions) (checkpoint.Source, error) {
	root, ok := r.file.Root.(*pickle.Dict)
	if !ok {
		return nil, r.bad("the file contains an object of type %s; it must contain the dict of a nanoGPT checkpoint", pickle.TypeName(r.file.Root))
	}
	r.root = root
	// Shape, weights, iteration.
	m, err := r.model()
	if err != nil {
		return nil, err
	}
	weights, err := r.dict("model")
	if err != nil {
		return nil, err
	}
	state := checkpoint.State{}
	if v, ok := root.Get("iter_num"); ok {
		if state.Iteration, ok = pickle.Int(v); !ok || state.Iteration < 0 {
			return nil, r.bad("iter_num is %v; it must be an integer of 0 or more", v)
		}
	}
	if o.Step >= 0 && o.Step != state.Iteration {
		return nil, exitcode.Errorf(exitcode.NoInput, "%s is from iteration %d, but iteration %d was requested", r.path, state.Iteration, o.Step)
	}
	// Names are GPT-2's, with linear weights not transposed.
	mp, err := hf.NewLinearMapping(m)
	if err != nil {
		return nil, err
	}
	values := hf.NewTorch(r.path)
	if err := values.Add(r.file, weights, plain); err != nil {
		return nil, err
	}
	if err := r.known(mp, values); err != nil {
		return nil, err
	}
	kinds := []hf.Kind{{Prefix: checkpoint.Model, Store: r.store(mp, values)}}
	info := checkpoint.Info{Format: checkpoint.NanoGPT, Path: r.path, Family: hf.GPT2, Model: m, SeqLength: m.MaxPositions}
	// Moments, or a note why there are none.
	if more, note := r.moments(mp, values, &state); note != "" {
		info.Notes = append(info.Notes, note)
	} else {
		kinds = append(kinds, more...)
	}
	return hf.NewMapped(info, state, mp, kinds, r.file.Close)
}

// plain is a tensor's name without what torch.compile puts before it.
func plain(name string) string { return strings.TrimPrefix(name, compiled) }

func (r *reader) dict(key string) (*pickle.Dict, error) {
	v, ok := r.root.Get(key)
	if !ok {
		return nil, r.bad("%q is missing, so this is not a nanoGPT checkpoint", key)
	}
	d, ok := v.(*pickle.Dict)
	if !ok {
		return nil, r.bad("%q has type %s, not dict, so this is not a nanoGPT checkpoint", key, pickle.TypeName(v))
	}
	return d, nil
}

// model is the shape that model_args say.
func (r *reader) model() (*spec.Model, error) {
	args, err := r.dict("model_args")
	if err != nil {
		return nil, err
	}
	// Sizes, each within bounds; the first bad one is the error.
	size := func(key string) int {
		v, _ := args.Get(key)
		n, ok := pickle.Int(v)
		most := int64(1 << 24)
		if key == "n_layer" {
			most = 10_000
		}
		if !ok || n < 1 || n > most {
			if err == nil {
				err = r.bad("model_args: %s is %v; it must be an integer from 1 to %d", key, v, most)
			}
			return 1
		}
		return int(n)
	}
	h, heads := size("n_embd"), size("n_head")
	m := &spec.Model{NumLayers: size("n_layer"), HiddenSize: h, FFNHiddenSize: 4 * h, NumAttentionHeads: heads, NumQueryGroups: heads,
		VocabSize: size("vocab_size"), MaxPositions: size("block_size"), Position: spec.PositionLearned, RotaryPercent: 1,
		Normalization: spec.LayerNorm, NormEpsilon: 1e-5, Activation: spec.GeluErf, LinearBias: true, QKVBias: true, Tied: true, WindowLeft: -1,
		InitStd: 0.02, EmbeddingInitStd: 0.02}
	if err != nil {
		return nil, err
	}
	// What follows from them.
	if h%heads != 0 {
		return nil, r.bad("model_args: n_head %d does not divide n_embd %d", heads, h)
	}
	m.KVChannels, m.PaddedVocabSize, m.Context = h/heads, m.VocabSize, m.MaxPositions
	bias, _ := args.Get("bias")
	r.bias = bias != false
	// Checkpoints of ours say when the model uses GELU's tanh form, which nanoGPT does not have.
	if v, ok := r.root.Get("config"); ok {
		if config, ok := v.(*pickle.Dict); ok {
			if form, _ := config.Get("activation_function"); form == tanhGelu {
				m.Activation = spec.GeluTanh
			}
		}
	}
	return m, nil
}

// known refuses tensors that are not part of the model.
func (r *reader) known(mp *hf.Mapping, values *hf.Torch) error {
	names := map[string]bool{"lm_head.weight": true}
	for _, s := range mp.Sources() {
		names[s.Name] = true
	}
	for _, name := range values.Names() {
		if !names[name] && !strings.HasSuffix(name, ".attn.bias") { // the causal mask of old torch
			return r.bad("tensor %q is not part of the model that model_args describes", name)
		}
	}
	return nil
}

// store adds the biases that a model without them does not have: zeros.
func (r *reader) store(mp *hf.Mapping, t *hf.Torch) hf.Store {
	s := &store{Torch: t, zero: map[string]zeros{}}
	if r.bias {
		return s
	}
	for _, source := range mp.Sources() {
		if _, has := t.Info(source.Name); has || !strings.HasSuffix(source.Name, ".bias") {
			continue
		}
		if like, ok := t.Info(strings.TrimSuffix(source.Name, "bias") + "weight"); ok {
			s.zero[source.Name] = zeros{like.DType, source.Shape}
		}
	}
	return s
}

type zeros struct {
	dtype string
	shape []int64
}

// store is hf.Torch with some tensors of zeros.
type store struct {
	*hf.Torch
	zero map[string]zeros
}

func (s *store) Info(name string) (string, []int64, bool) {
	if z, ok := s.zero[name]; ok {
		return z.dtype, z.shape, true
	}
	info, ok := s.Torch.Info(name)
	return info.DType, info.Shape, ok
}

func (s *store) ReadAt(name string, dst []byte, at int64) error {
	if _, ok := s.zero[name]; ok {
		clear(dst)
		return nil
	}
	return s.Torch.ReadAt(name, dst, at)
}

func (s *store) Where(name string) string {
	return fmt.Sprintf("%s: tensor %q", s.Torch.Where(name), name)
}

// moments finds AdamW's state: parameters are numbered through the groups, those
// of two dimensions first. note says why none can be taken.
func (r *reader) moments(mp *hf.Mapping, values *hf.Torch, state *checkpoint.State) (kinds []hf.Kind, note string) {
	// A checkpoint may be without it.
	v, _ := r.root.Get("optimizer")
	root, _ := v.(*pickle.Dict)
	if v, _ = root.Get("state"); root == nil || v == nil {
		return nil, "the checkpoint has no optimizer state"
	}
	byID, _ := v.(*pickle.Dict)
	if byID == nil || len(byID.Pairs) == 0 {
		return nil, "the optimizer has no state yet"
	}
	// State by number: a parameter's moments, under its name.
	names := parameters(values)
	m, s := hf.NewTorch(r.path), hf.NewTorch(r.path)
	for _, p := range byID.Pairs {
		id, ok := p.Key.(int64)
		d, isDict := p.Value.(*pickle.Dict)
		if !ok || !isDict || id < 0 || id >= int64(len(names)) {
			return nil, fmt.Sprintf("the optimizer is left out, because its state %v belongs to no parameter", p.Key)
		}
		for key, t := range map[string]*hf.Torch{"exp_avg": m, "exp_avg_sq": s} {
			tensor, _ := d.Get(key)
			if err := t.Add(r.file, pickle.NewDict(names[id], tensor), plain); err != nil {
				return nil, "the optimizer is left out: " + err.Error()
			}
		}
		if step, err := stepOf(d); err == nil {
			state.Extra = map[string]json.RawMessage{checkpoint.ExtraAdamSteps: json.RawMessage(strconv.FormatInt(step, 10))}
		}
	}
	if len(byID.Pairs) != len(names) {
		return nil, fmt.Sprintf("the optimizer is left out, because it has only %d of %d parameters", len(byID.Pairs), len(names))
	}
	return []hf.Kind{{Prefix: checkpoint.ExpAvg, Store: r.store(mp, m)}, {Prefix: checkpoint.ExpSq, Store: r.store(mp, s)}}, ""
}

// parameters lists the names in the optimizer's order.
func parameters(values *hf.Torch) []string {
	var matrices, vectors []string
	for _, name := range values.Names() {
		info, _ := values.Info(name)
		switch {
		case name == "lm_head.weight" || strings.HasSuffix(name, ".attn.bias"): // tied; a mask
		case len(info.Shape) >= 2:
			matrices = append(matrices, name)
		default:
			vectors = append(vectors, name)
		}
	}
	return slices.Concat(matrices, vectors)
}

// stepOf is the number of updates, a tensor of one f32 or a number.
func stepOf(d *pickle.Dict) (int64, error) {
	v, _ := d.Get("step")
	t, ok := v.(*pickle.Tensor)
	if !ok {
		n, ok := pickle.Int(v)
		if !ok {
			return 0, fmt.Errorf("step has type %s; it must be an integer", pickle.TypeName(v))
		}
		return n, nil
	}
	if t.Len() != 1 {
		return 0, fmt.Errorf("step has %d elements; it must have one", t.Len())
	}
	raw, err := t.Read()
	if err != nil {
		return 0, err
	}
	wide := make([]byte, 4)
	if err := checkpoint.Convert(wide, "F32", raw, t.DType); err != nil {
		return 0, err
	}
	return int64(float32From(wide)), nil
}
