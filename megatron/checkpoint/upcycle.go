package checkpoint

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"monotron/internal/exitcode"
	"monotron/internal/safetensors"
	"monotron/megatron/spec"
	"monotron/mpu"
)

// Upcycle shows a dense checkpoint's weights as those of the mixture m, by the rule of
// Megatron-LM (core/transformer/moe/upcycling_utils.py; arXiv 2410.07524). With G = the
// dense MLP's width / an expert's, expert j is stretch j%G of the MLP's channels, so G experts
// in a row are the MLP once, and all G have the same row of the router. What weights take away
// from the sum is given back to fc1 and fc2 (upcycleScale). Layers without experts stay as
// they are. router fills out with the start of a router's weight, from its first element on.
// Where m cannot be made, the error (exitcode.Usage) says all that is in the way.
func Upcycle(src Source, m *spec.Model, router func(name string, out []float32)) (Source, error) {
	dense := src.Info().Model
	if err := upcyclable(dense, m); err != nil {
		return nil, exitcode.Errorf(exitcode.Usage, "%s cannot be converted to this mixture of experts: %w", src.Info().Path, err)
	}
	// Which tensors are made, and from which stretch of the dense MLP.
	e := m.Experts
	u := &upcycled{Source: src, model: m, router: router, shards: int64(dense.FFNHiddenSize / e.FFNHiddenSize), made: map[string]shard{}}
	u.scale = upcycleScale(m, int(u.shards))
	have := map[string]Tensor{}
	for _, t := range src.Tensors() {
		have[t.Name] = t
	}
	for i := range m.NumLayers {
		if m.MixtureAt(i) {
			u.layer(i)
		}
	}
	// The mixture's list: made of a dense tensor, of the router's start, or as the dense checkpoint has it.
	for _, t := range Expected(m) {
		t.Name = Model + t.Name
		from, made := u.made[t.Name]
		switch old, found := have[from.of]; {
		case made && found:
			t.DType, from.dtype = old.DType, old.DType
			u.made[t.Name] = from
		case made:
			return nil, exitcode.Errorf(exitcode.BadData, "%s has no %s", src.Info().Path, from.of)
		case strings.Contains(t.Name, ".mlp.router."):
			t.DType = "F32"
		default:
			t.DType = have[t.Name].DType
		}
		if t.DType != "" { // else the load says what is missing
			u.list = append(u.list, t)
		}
	}
	return u, nil
}

// upcyclable lists what keeps dense from becoming m.
func upcyclable(dense, m *spec.Model) error {
	switch {
	case dense == nil:
		return errors.New("the checkpoint does not describe its model")
	case dense.Experts != nil:
		return errors.New("the checkpoint already has experts; leave --moe-use-upcycling out to continue with them")
	}
	var wrong []error
	bad := func(is bool, format string, args ...any) {
		if is {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	// The models differ in experts alone.
	e, like := m.Experts, *dense
	like.Experts = e
	for _, what := range like.Differs(m) {
		bad(true, "%s", what)
	}
	// The MLP's channels are cut into experts evenly.
	bad(dense.HiddenSize != m.HiddenSize, "the hidden size is %d, but that of the mixture is %d", dense.HiddenSize, m.HiddenSize)
	bad(dense.FFNHiddenSize%e.FFNHiddenSize != 0, "the MLP width %d is not a multiple of the expert width %d", dense.FFNHiddenSize, e.FFNHiddenSize)
	if g := dense.FFNHiddenSize / e.FFNHiddenSize; g > 0 {
		bad(e.Num%g != 0, "--num-experts %d is not a multiple of the %d experts per MLP", e.Num, g)
	}
	bad(e.LatentSize > 0, "a dense model cannot initialize projections around experts (--moe-latent-size)")
	bad(e.SharedFFN > 0, "a dense model cannot initialize a shared expert")
	for i, on := range e.Layers {
		bad(!on && dense.FFNHiddenSize != m.FFNHiddenSize, "layer %d has no experts, but its MLP has the width %d instead of %d", i, m.FFNHiddenSize, dense.FFNHiddenSize)
	}
	return errors.Join(wrong...)
}

// upcycleScale is what the weights of fc1 and fc2 are multiplied by: so that a token's experts
// add up to the MLP's output although each has a weight below 1. It holds for activations
// of the degree that it takes: 1 (gated: 2 for the pair), 2 for a squared ReLU.
func upcycleScale(m *spec.Model, shards int) float64 {
	lost := float64(shards)
	if e := m.Experts; e.PreSoftmax { // as if all probabilities were equal
		lost = float64(e.Num) * float64(shards) / float64(e.TopK)
	}
	if m.Gated() || m.Activation == spec.SquaredRelu {
		return math.Pow(lost, 1.0/3)
	}
	return math.Sqrt(lost)
}

type upcycled struct {
	Source
	model  *spec.Model
	router func(name string, out []float32)
	shards int64 // experts that make the MLP once
	scale  float64
	list   []Tensor
	made   map[string]shard // tensors of experts
}

// shard says how a tensor of an expert is cut out of one of the dense MLP.
type shard struct {
	of      string
	dtype   string
	at      int64 // number of the shard
	columns bool  // of the last dimension
	uncut   bool  // not cut, nor multiplied
}

func (u *upcycled) layer(i int) {
	mlp := Model + LayerName(i) + "mlp."
	for j := range u.model.Experts.Num {
		name, at := Model+ExpertName(i, j), int64(j)%u.shards
		u.made[name+"linear_fc1.weight"] = shard{of: mlp + "linear_fc1.weight", at: at}
		u.made[name+"linear_fc2.weight"] = shard{of: mlp + "linear_fc2.weight", at: at, columns: true}
		if u.model.LinearBias {
			u.made[name+"linear_fc1.bias"] = shard{of: mlp + "linear_fc1.bias", at: at}
			u.made[name+"linear_fc2.bias"] = shard{of: mlp + "linear_fc2.bias", uncut: true}
		}
	}
}

func (u *upcycled) Info() Info {
	info := u.Source.Info()
	info.Model = u.model
	return info
}

func (u *upcycled) Tensors() []Tensor { return u.list }

// State is that of a model from which training starts.
func (u *upcycled) State() State { return State{} }

func (u *upcycled) Read(name string, box mpu.Piece, dst []byte) error {
	from, made := u.made[name]
	switch {
	case strings.HasSuffix(name, ".mlp.router.weight"):
		return u.readRouter(strings.TrimPrefix(name, Model), box, dst)
	case strings.Contains(name, ".mlp.router."):
		clear(dst) // biases
		return nil
	case !made:
		return u.Source.Read(name, box, dst)
	case from.uncut:
		return u.Source.Read(from.of, box, dst)
	case from.columns:
		box.From = append([]int64{}, box.From...)
		box.From[1] += from.at * int64(u.model.Experts.FFNHiddenSize)
		if err := u.Source.Read(from.of, box, dst); err != nil {
			return err
		}
	default:
		if err := u.readRows(from, box, dst); err != nil {
			return err
		}
	}
	return u.multiply(from.dtype, dst)
}

// readRows reads rows of an expert's fc1: of a gated one [gate; up], each cut by itself.
func (u *upcycled) readRows(from shard, box mpu.Piece, dst []byte) error {
	width := int64(u.model.Experts.FFNHiddenSize)
	row := int64(len(dst)) / box.Size[0]
	for at, end := box.From[0], box.From[0]+box.Size[0]; at < end; {
		half := at / width
		n := min(end, (half+1)*width) - at
		sub := mpu.Piece{From: append([]int64{half*width*u.shards + from.at*width + at%width}, box.From[1:]...), Size: append([]int64{n}, box.Size[1:]...)}
		to := (at - box.From[0]) * row
		if err := u.Source.Read(from.of, sub, dst[to:to+n*row]); err != nil {
			return err
		}
		at += n
	}
	return nil
}

// multiply multiplies raw elements; in f32 unless they are wider, as torch does.
func (u *upcycled) multiply(dtype string, raw []byte) error {
	values := make([]float64, int64(len(raw))/max(1, Width(dtype)))
	known := safetensors.Decode(values, dtype, raw)
	for i, v := range values {
		if values[i] = v * u.scale; dtype != "F64" {
			values[i] = float64(float32(v) * float32(u.scale))
		}
	}
	if out, ok := safetensors.Encode(raw[:0], dtype, values); !known || !ok || len(out) != len(raw) {
		return exitcode.Errorf(exitcode.BadData, "%s: weights of type %s cannot be multiplied", u.Source.Info().Path, dtype)
	}
	return nil
}

// readRouter gives the rows that the run starts with, each to the experts that make one MLP.
func (u *upcycled) readRouter(name string, box mpu.Piece, dst []byte) error {
	h, rows := int64(u.model.HiddenSize), int64(u.model.Experts.Num)/u.shards
	start := make([]float32, rows*h)
	u.router(name, start)
	var values []float32
	for i := range box.Size[0] {
		row := start[(box.From[0]+i)/u.shards*h:][:h]
		values = append(values, row[box.From[1]:box.From[1]+box.Size[1]]...)
	}
	_, _ = safetensors.Encode(dst[:0], "F32", values) // F32 is known
	return nil
}
