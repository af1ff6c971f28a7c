package nanogpt

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"math"
	"path/filepath"
	"strings"

	"monotron/internal/exitcode"
	"monotron/internal/parallelio/blocks"
	"monotron/internal/pickle"
	"monotron/internal/safetensors"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/hf"
	"monotron/megatron/spec"
	"monotron/mpu"
)

func float32From(raw []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(raw)) }

// Write makes a folder with ckpt.pt, or the file itself where path ends in .pt.
// nanoGPT resumes from it: an optimizer without moments starts afresh.
func Write(ctx context.Context, path string, src checkpoint.Source, _ checkpoint.WriteOptions) (checkpoint.Written, error) {
	w, err := newWriting(src)
	if err != nil {
		return checkpoint.Written{}, err
	}
	done := checkpoint.Written{Path: path, Files: 1, Notes: w.notes}
	save := func(file string) error {
		return checkpoint.WriteFile(file, func(to io.Writer) (err error) {
			done.Bytes, err = pickle.Save(ctx, to, "ckpt", w.root())
			return err
		})
	}
	if strings.HasSuffix(path, ".pt") {
		err = checkpoint.Single(path, func() error { return save(path) })
	} else {
		err = checkpoint.Folder(ctx, path, func(tmp string) error { return save(filepath.Join(tmp, fileName)) })
	}
	return done, err
}

// writing is one checkpoint under way.
type writing struct {
	src     checkpoint.Source
	mapping *hf.Mapping
	infos   []safetensors.Info
	moments bool
	notes   []string
}

func newWriting(src checkpoint.Source) (*writing, error) {
	m := src.Info().Model
	mp, err := hf.NewLinearMapping(m)
	if err != nil {
		return nil, err
	}
	w := &writing{src: src, mapping: mp}
	// What nanoGPT's model cannot be.
	switch {
	case m.Activation != spec.GeluErf && m.Activation != spec.GeluTanh:
		return nil, exitcode.Errorf(exitcode.Usage, "nanoGPT has no %s activation", m.Activation)
	case m.FFNHiddenSize != 4*m.HiddenSize:
		return nil, exitcode.Errorf(exitcode.Usage, "nanoGPT does not support an MLP of width %d with %d channels; the MLP must be 4 times as wide as the model", m.FFNHiddenSize, m.HiddenSize)
	case m.NormEpsilon != 1e-5:
		return nil, exitcode.Errorf(exitcode.Usage, "nanoGPT computes norms with epsilon 1e-5, but the model has %g", m.NormEpsilon)
	case !m.Tied:
		return nil, exitcode.Errorf(exitcode.Usage, "nanoGPT has no separate output layer, but the model has one")
	case m.Activation == spec.GeluTanh:
		w.notes = append(w.notes, "the model was trained with the tanh form of GELU; nanoGPT computes the exact (erf) form, so its results will differ slightly")
	}
	if w.infos, _, err = hf.Plan(src, mp); err != nil {
		return nil, err
	}
	// Moments are written if every parameter has both.
	w.moments = w.complete(checkpoint.ExpAvg) && w.complete(checkpoint.ExpSq)
	if w.complete(checkpoint.Main) {
		w.notes = append(w.notes, "f32 main parameters are left out, because nanoGPT's format has none; use --dtype f32 to write them as the weights")
	}
	return w, nil
}

func (w *writing) complete(prefix string) bool {
	have := map[string]bool{}
	for _, t := range w.src.Tensors() {
		have[t.Name] = true
	}
	for _, name := range w.mapping.GlobalNames() {
		if !have[prefix+name] {
			return false
		}
	}
	return true
}

// tensor is one of nanoGPT's, made when it is saved, some rows at a time.
func (w *writing) tensor(prefix, name, dtype string, shape []int64) *pickle.Tensor {
	const taskBytes = 8 << 20
	read, width := hf.ReadFrom(w.src, prefix), checkpoint.Width(dtype)
	var tasks []blocks.Task
	checkpoint.BoxByRows(checkpoint.Uncut(shape), taskBytes/width, func(sub mpu.Piece) {
		tasks = append(tasks, blocks.Task{Bytes: sub.Len() * width, Fill: func(dst []byte) error {
			return w.mapping.ScatterRows(dst, name, sub.From[0], sub.From[0]+sub.Size[0], width, read)
		}})
	})
	return pickle.NewTensor(dtype, shape, tasks)
}

func (w *writing) root() *pickle.Dict {
	m := w.mapping.Model
	weights := pickle.NewDict()
	for _, info := range w.infos {
		weights.Set(info.Name, w.tensor(checkpoint.Model, info.Name, info.DType, info.Shape))
	}
	words, _ := weights.Get(w.infos[0].Name)
	weights.Set("lm_head.weight", words) // one storage for both, as nanoGPT ties them
	config := pickle.NewDict()
	if m.Activation == spec.GeluTanh {
		config.Set("activation_function", tanhGelu)
	}
	return pickle.NewDict("model", weights, "optimizer", w.optimizer(),
		"model_args", pickle.NewDict("n_layer", int64(m.NumLayers), "n_head", int64(m.NumAttentionHeads), "n_embd", int64(m.HiddenSize),
			"block_size", int64(m.MaxPositions), "bias", true, "vocab_size", int64(m.VocabSize), "dropout", 0.0),
		"iter_num", w.src.State().Iteration, "best_val_loss", scalar(1e9), "config", config)
}

// optimizer is torch's AdamW state: moments where there are any, and nanoGPT's
// two groups.
func (w *writing) optimizer() *pickle.Dict {
	state := pickle.NewDict()
	var ids [2][]pickle.Value
	id := int64(0)
	for group := range ids {
		for _, info := range w.infos {
			if matrix := len(info.Shape) >= 2; matrix != (group == 0) {
				continue
			}
			if w.moments {
				entry := pickle.NewDict("step", scalar(float32(w.steps())),
					"exp_avg", w.tensor(checkpoint.ExpAvg, info.Name, "F32", info.Shape), "exp_avg_sq", w.tensor(checkpoint.ExpSq, info.Name, "F32", info.Shape))
				state.Pairs = append(state.Pairs, pickle.Pair{Key: id, Value: entry})
			}
			ids[group] = append(ids[group], id)
			id++
		}
	}
	return pickle.NewDict("state", state, "param_groups", &pickle.List{Items: []pickle.Value{paramGroup(0.1, ids[0]), paramGroup(0, ids[1])}})
}

// paramGroup has nanoGPT's defaults; its training sets the learning rate again.
func paramGroup(decay float64, ids []pickle.Value) *pickle.Dict {
	return pickle.NewDict("weight_decay", decay, "lr", 6e-4, "betas", &pickle.Tuple{Items: []pickle.Value{0.9, 0.95}}, "eps", 1e-8,
		"amsgrad", false, "maximize", false, "foreach", nil, "capturable", false, "differentiable", false, "fused", nil,
		"decoupled_weight_decay", true, "params", &pickle.List{Items: ids})
}

// steps is the number of updates made.
func (w *writing) steps() int64 {
	state := w.src.State()
	var n int64
	if json.Unmarshal(state.Extra[checkpoint.ExtraAdamSteps], &n) != nil {
		return state.Iteration
	}
	return n
}

func scalar(v float32) *pickle.Tensor {
	return pickle.Constant("F32", []int64{}, binary.LittleEndian.AppendUint32(nil, math.Float32bits(v)))
}
