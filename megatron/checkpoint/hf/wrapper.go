package hf

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"monotron/internal/safetensors"
)

// Models that take images keep the settings of their text part in text_config and its tensors
// under names of their own. The text part is read as the family that it is; the rest is left out.

// wrappers are what the text part's model_type may be of each such model_type; the first where it is
// not said.
var wrappers = map[string][]string{
	"qwen3_5":     {Qwen35},
	"qwen3_5_moe": {Qwen35MoE},
	"gemma3":      {Gemma3},
	"gemma4":      {Gemma4},
	"mistral3":    {Mistral, Ministral3},
}

// textConfig is the config.json of the text part where raw is that of a wrapper, else raw.
func textConfig(raw []byte) (text []byte, wrapped bool, err error) {
	var outer, inner map[string]json.RawMessage
	var kind string
	if json.Unmarshal(raw, &outer) != nil || json.Unmarshal(outer["model_type"], &kind) != nil || wrappers[kind] == nil {
		return raw, false, nil // ParseConfig says what is wrong
	}
	if outer["text_config"] == nil {
		return nil, false, fmt.Errorf("text_config is missing; a %s model must have it", kind)
	}
	if err := json.Unmarshal(outer["text_config"], &inner); err != nil || inner == nil {
		return nil, false, fmt.Errorf("text_config is %.40s; it must be an object", outer["text_config"])
	}
	named := wrappers[kind][0]
	if name, given := inner["model_type"]; given && (json.Unmarshal(name, &named) != nil || !slices.Contains(wrappers[kind], named)) {
		return nil, false, fmt.Errorf("text_config has the model_type %s, but in a %s model it must be %s", name, kind, strings.Join(wrappers[kind], " or "))
	}
	inner["model_type"], _ = json.Marshal(named) // a string
	for _, key := range []string{"tie_word_embeddings", "quantization_config"} {
		value, given := outer[key]
		if !given {
			continue
		}
		if other, both := inner[key]; both && string(other) != string(value) {
			return nil, false, fmt.Errorf("%s has different values in text_config and outside text_config; make them equal", key)
		}
		inner[key] = value
	}
	text, err = json.Marshal(inner)
	return text, true, err
}

// textPart are the tensors of a folder whose files hold more than the text model: names of the
// text model alone, each expert by itself.
type textPart struct {
	Files
	names map[string]part // by the text model's name
	left  []string        // kinds of tensors that are left out, with their number
}

// part is the position of a tensor: bytes from At on of the files' tensor Outer, in the shape Shape.
type part struct {
	Outer string
	At    int64
	Shape []int64 // nil: all of it
}

// leftOut are the tensors that are not of the text model, by what they are.
var leftOut = []struct {
	what string
	name *regexp.Regexp
}{
	{"layers of multi-token prediction", regexp.MustCompile(`^(model\.|language_model\.)?mtp\.`)},
	{"the part that reads images", regexp.MustCompile(`^(model\.)?(visual|vision_tower|multi_modal_projector|embed_vision|audio_tower|embed_audio)\.`)},
}

// ownAheadProjection ends the name of the projection of the layer of multi-token prediction that Qwen3-Next
// and those after it have.
const ownAheadProjection = "mtp.fc.weight"

// newTextPart lists the text model's tensors in files, and with mtp those of multi-token prediction. Those of
// a wrapper have names that begin with "model.language_model." (transformers 5) or "language_model." (4).
func newTextPart(files Files, wrapped, mtp bool) *textPart {
	p := &textPart{Files: files, names: map[string]part{}}
	counts := make([]int, len(leftOut))
files:
	// A tensor is multi-token prediction's, left out (vision, audio), or the text model's.
	for _, name := range files.Names() {
		for i, kind := range leftOut {
			if i == 0 && mtp && kind.name.MatchString(name) {
				p.add(name[strings.Index(name, "mtp."):], name)
				continue files
			}
			if (wrapped || i == 0) && kind.name.MatchString(name) {
				counts[i]++
				continue files
			}
		}
		// The text model's tensors get the names that they have without the wrapper.
		text := name
		if rest, ok := strings.CutPrefix(name, "model.language_model."); ok && wrapped {
			text = "model." + rest
		} else if rest, ok := strings.CutPrefix(name, "language_model."); ok && wrapped {
			text = rest
		}
		p.add(text, name)
	}
	// What was left out is reported, by kind.
	for i, n := range counts {
		if n > 0 {
			p.left = append(p.left, fmt.Sprintf("%d tensors of %s", n, leftOut[i].what))
		}
	}
	return p
}

// fusedExperts are tensors that hold all experts of a layer: gates and the other halves
// [experts, 2·width, hidden], or what follows them [experts, hidden, width].
var fusedExperts = regexp.MustCompile(`^(.*\.mlp\.experts\.)(gate_up_proj|down_proj)$`)

// add lists a tensor of the files under the text model's name, a fused one expert by expert.
func (p *textPart) add(text, name string) {
	info, _ := p.Files.Info(name)
	found := fusedExperts.FindStringSubmatch(text)
	if found == nil || len(info.Shape) != 3 || elements(info.Shape) < 1 || info.Shape[0] > maxMixed || found[2] == "gate_up_proj" && info.Shape[1]%2 != 0 {
		p.names[text] = part{Outer: name}
		return
	}
	halves := []string{"down_proj"}
	if found[2] == "gate_up_proj" {
		halves = []string{"gate_proj", "up_proj"}
	}
	n := int64(len(halves))
	each := info.Bytes / (info.Shape[0] * n)
	for j := range info.Shape[0] {
		for i, half := range halves {
			p.names[fmt.Sprintf("%s%d.%s.weight", found[1], j, half)] = part{name, (j*n + int64(i)) * each, []int64{info.Shape[1] / n, info.Shape[2]}}
		}
	}
}

// Names are those of the text model.
func (p *textPart) Names() []string { return slices.Sorted(maps.Keys(p.names)) }

// Info is a tensor's type and shape.
func (p *textPart) Info(name string) (safetensors.Info, bool) {
	at, ok := p.names[name]
	if !ok {
		return safetensors.Info{}, false
	}
	info, ok := p.Files.Info(at.Outer)
	if info.Name = name; at.Shape != nil {
		info.Bytes, info.Shape = info.Bytes/elements(info.Shape)*elements(at.Shape), at.Shape
	}
	return info, ok
}

// ReadAt fills dst from a tensor's byte at on.
func (p *textPart) ReadAt(name string, dst []byte, at int64) error {
	return p.Files.ReadAt(p.names[name].Outer, dst, p.names[name].At+at)
}

// Where is the path of the file.
func (p *textPart) Where(name string) string { return p.Files.Where(p.names[name].Outer) }
