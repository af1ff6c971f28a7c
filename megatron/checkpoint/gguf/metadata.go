package gguf

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"monotron/csrc/device/activations"
	"monotron/internal/exitcode"
	"monotron/internal/gguf"
	"monotron/megatron/checkpoint/hf"
	"monotron/megatron/spec"
)

// fileTypes are general.file_type's numbers.
var fileTypes = map[gguf.Type]uint32{gguf.F32: 0, gguf.F16: 1, gguf.Q8_0: 7, gguf.BF16: 32, gguf.MXFP4: 38}

// describing makes the metadata of a model.
type describing struct {
	f      *family
	m      *spec.Model
	config map[string]any // config.json, completed
	own    map[string]any // config.json of the source's folder; nil: it has none
	out    []gguf.Pair
	notes  []string
	lacks  []string
}

// describe lists the metadata of a model but for its tokenizer. What llama.cpp's
// architecture computes otherwise is an error; what differs by little is a note.
func (d *describing) describe(path string, kind gguf.Type) error {
	d.check()
	if len(d.lacks) > 0 {
		return exitcode.Errorf(exitcode.Usage, "llama.cpp's architecture %s cannot represent: %s", d.f.arch, strings.Join(d.lacks, "; "))
	}
	d.add("general.architecture", d.f.arch)
	d.add("general.type", "model")
	d.add("general.name", filepath.Base(filepath.Clean(path)))
	for _, s := range d.f.settings() {
		d.setting(s.key, s.setting)
	}
	if !d.f.custom {
		d.heads()
		d.scaling()
	}
	d.extra()
	if d.f.describe != nil {
		d.f.describe(d)
	}
	if !d.f.noFileType {
		d.add("general.file_type", fileTypes[kind])
	}
	d.add("general.quantization_version", uint32(2))
	return nil
}

func (d *describing) add(key string, value any) {
	d.out = append(d.out, gguf.Pair{Key: key, Value: value})
}

// put adds a key of the architecture.
func (d *describing) put(key string, value any) { d.add(d.f.arch+"."+key, value) }

// need notes what the architecture cannot hold.
func (d *describing) need(ok bool, format string, args ...any) {
	if !ok {
		d.lacks = append(d.lacks, fmt.Sprintf(format, args...))
	}
}

// withOrWithout says whether a layer has a part.
func withOrWithout(has bool) string {
	if has {
		return "with"
	}
	return "without"
}

// setting adds a key with the value that config.json has for it; none where it has none.
func (d *describing) setting(key, setting string) {
	v := d.config[setting]
	rope, _ := d.config["rope_parameters"].(map[string]any)
	switch {
	case key == "attention.head_count_kv" && v == nil:
		v = float64(d.m.NumQueryGroups)
	case key == "feed_forward_length" && v == nil && !d.allExperts():
		v = float64(d.m.FFNHiddenSize)
	case key == "context_length" && d.f.hf == hf.Cohere && d.own["model_max_length"] != nil:
		v = d.own["model_max_length"]
	case key == "attention.sliding_window" && v == nil && d.f.custom:
		v = float64(0) // as Phi-4: none
	case setting == "original_max_position_embeddings" && v == nil:
		v = d.config["max_position_embeddings"]
	case setting == "rope_theta" && rope != nil:
		if full, ok := rope["full_attention"].(map[string]any); ok {
			rope = full
		}
		if theta, ok := rope["rope_theta"]; ok {
			v = theta
		}
	}
	switch v := v.(type) {
	case bool:
		d.put(key, v)
	case float64:
		switch {
		case slices.Contains(fractions, key):
			d.put(key, float32(v))
		case v >= 0 && v <= math.MaxUint32 && v == math.Trunc(v):
			d.put(key, uint32(v))
		}
	}
}

// allExperts reports that no layer has an MLP.
func (d *describing) allExperts() bool {
	return d.m.Experts != nil && !d.m.ParallelMLP && !slices.Contains(d.m.Experts.Layers, false)
}

// heads adds the width of a head, where the model says it.
func (d *describing) heads() {
	if d.m.Latent != nil || d.m.Full != nil {
		return // describe adds them
	}
	if (d.f.narrow || d.own != nil && d.own["head_dim"] == nil) && d.m.NumAttentionHeads*d.m.KVChannels == d.m.HiddenSize {
		return
	}
	d.put("attention.key_length", uint32(d.m.KVChannels))
	d.put("attention.value_length", uint32(d.m.KVChannels))
}

// scaling adds interpolated positions. Llama 3's scaling is a tensor.
func (d *describing) scaling() {
	if d.m.RotaryInterpolation > 1 {
		d.put("rope.scaling.type", "linear")
		d.put("rope.scaling.factor", float32(d.m.RotaryInterpolation))
	}
	if r := rule(d.m); r != nil && r.Type == spec.RopeYarn {
		d.yarn(r)
	}
	if rope, ok := d.config["rope_parameters"].(map[string]any); ok {
		if local, ok := rope["sliding_attention"].(map[string]any); ok {
			if theta, ok := local["rope_theta"].(float64); ok {
				d.put("rope.freq_base_swa", float32(theta))
			}
		}
	}
}

// extra adds further keys of some architectures.
func (d *describing) extra() {
	if d.f.sizes {
		d.put("vocab_size", uint32(d.m.VocabSize))
	}
	switch d.f.arch {
	case "llama", "smollm3", "granite", "phi3", "gptneox", "glm4moe", "mistral3", "minimax-m2", "deepseek2":
		d.put("rope.dimension_count", uint32(d.m.RotaryDims()))
	}
	if d.f.arch == "glm4moe" {
		d.put("expert_gating_func", uint32(2)) // sigmoid
	}
}

// check compares the model with what llama.cpp computes for the architecture.
func (d *describing) check() {
	m := d.m
	d.need(!d.f.narrow || m.NumAttentionHeads*m.KVChannels == m.HiddenSize, "heads of width %d", m.KVChannels)
	d.need(m.RopeScaling == nil || d.f.scales(), "Llama 3's RoPE scaling")
	d.need(m.RotaryInterpolation <= 1 || !d.f.custom, "interpolated positions")
	switch d.f.arch { // llama.cpp reads no other tensors
	case "qwen3", "qwen3moe", "olmo2", "olmoe":
		d.need(!m.QKVBias && !m.HasProjBias(), "attention_bias")
	case "gptneox":
		d.need(m.QKVBias, "attention_bias false")
	}
	d.checkRule()
	if m.WindowLeft >= 0 {
		d.checkWindows()
	}
	for i := range m.NumLayers {
		rotates := d.f.arch != "smollm3" || (i+1)%4 != 0
		if d.f.arch == "exaone4" {
			rotates = m.WindowLeft < 0 || m.WindowAt(i) >= 0
		}
		d.need(m.Position != spec.PositionRope || m.RopeAt(i) == rotates, "layer %d %s RoPE", i, withOrWithout(m.RopeAt(i)))
	}
	d.checkGemma()
	d.checkActivation()
	d.checkExperts()
	if d.f.check != nil {
		d.f.check(d)
	}
}

// checkWindows refuses a sliding window that the file cannot hold; in older rows a note says so.
func (d *describing) checkWindows() {
	_, holds := d.f.keys["attention.sliding_window"]
	switch {
	case d.f.exact:
		d.need(holds, "sliding_window")
	case !d.f.plusOne:
		d.notes = append(d.notes, fmt.Sprintf("llama.cpp applies no sliding window in the architecture %s: results differ for texts longer than %d tokens", d.f.arch, d.m.WindowLeft+1))
	}
}

// checkActivation compares the activation with the architecture's.
func (d *describing) checkActivation() {
	a, err := activations.Of(d.m.Activation)
	if err != nil || !slices.ContainsFunc(layersOf(d.m), d.m.MLPAt) {
		return
	}
	ok := a == activations.Swiglu || a == activations.GeluTanh || a == activations.GeluErf
	switch {
	case d.f.activation != "":
		ok = a.String() == d.f.activation
	case d.f.plusOne && d.m.Delta == nil: // Gemma, of which package hf reads this one
		ok = true
	case d.f.exact && d.f.hf != hf.Falcon:
		ok = a == activations.Swiglu
	}
	d.need(ok, "the %s activation", d.m.Activation)
	if a == activations.GeluErf && !d.f.plusOne {
		d.notes = append(d.notes, "llama.cpp computes GELU by its tanh approximation, but this model uses erf, so results differ in the fourth digit")
	}
}

// layersOf are the numbers of m's layers.
func layersOf(m *spec.Model) []int {
	list := make([]int, m.NumLayers)
	for i := range list {
		list[i] = i
	}
	return list
}

// checkGemma compares windows and the scale of scores with what the architecture implies.
func (d *describing) checkGemma() {
	m := d.m
	every := map[string]int{"gemma2": 2, "gemma3": 6}[d.f.arch]
	if every == 0 {
		return
	}
	for i := range m.NumLayers {
		local := (i+1)%every != 0
		d.need(m.WindowLeft < 0 || m.WindowAt(i) >= 0 == local, "layer %d %s a window", i, withOrWithout(m.WindowAt(i) >= 0))
	}
	divisor := d.f.scoreDivisor(int64(m.HiddenSize), int64(m.NumAttentionHeads), int64(m.KVChannels), int64(m.NumLayers))
	d.need(math.Abs(m.ScoreScale()*math.Sqrt(float64(divisor))-1) < 1e-6, "attention scores multiplied by %g", m.ScoreScale())
}

// checkExperts compares a mixture with what the architecture computes.
func (d *describing) checkExperts() {
	e := d.m.Experts
	if e == nil {
		return
	}
	if fixed, ok := d.f.fixed["norm_topk_prob"].(bool); ok {
		d.need(e.PreSoftmax != fixed, "norm_topk_prob %v", !e.PreSoftmax)
	}
	d.need(d.f.arch != "olmoe" || d.m.NumQueryGroups == d.m.NumAttentionHeads, "grouped queries")
	d.need(d.f.mixed || !slices.Contains(e.Layers, false), "layers without experts")
}
