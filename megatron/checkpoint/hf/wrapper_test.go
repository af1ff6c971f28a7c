package hf

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"monotron/internal/safetensors"
	"monotron/megatron/checkpoint"
)

// ownCases are reference cases of families that travel with the repository, made by
// transformers 5.24's classes of the text part.
const ownCases = "../../../tools/verify/modelcase/testdata"

// Claim: folders of text parts that are read and written again are what they were.
func TestTextPartsWriteWhatTheyRead(t *testing.T) {
	for _, name := range []string{"qwen3-5", "qwen3-5-moe", "gemma4", "gemma4-small", "gemma4-experts", "ministral3", "granite4-h", "granite4-h-experts", "nemotron-h", "nemotron3-experts", "nemotron3-latent", "mamba2"} {
		t.Run(name, func(t *testing.T) {
			dir := caseFolder(t, ownCases, name)
			src, err := OpenSource(dir, checkpoint.OpenOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer src.Close()
			out := filepath.Join(t.TempDir(), "out")
			if _, err := Write(t.Context(), out, src, checkpoint.WriteOptions{}); err != nil {
				t.Fatal(err)
			}
			sameTensors(t, filepath.Join(dir, safetensors.SingleName), filepath.Join(out, safetensors.SingleName))
			before, err := ReadConfig(filepath.Join(dir, ConfigName))
			if err != nil {
				t.Fatal(err)
			}
			after, err := ReadConfig(filepath.Join(out, ConfigName))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, after); diff != "" {
				t.Errorf("the model changed: %s", diff)
			}
		})
	}
}

// wrap makes the folder of a model that takes images of one of its text part: settings in
// text_config, tensors under the names that form gives, those of experts in one where fuse is
// set, and others around it.
func wrap(t *testing.T, dir, form string, fuse bool, change func(outer, text map[string]any)) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, ConfigName))
	if err != nil {
		t.Fatal(err)
	}
	var text map[string]any
	if err := json.Unmarshal(raw, &text); err != nil {
		t.Fatal(err)
	}
	outer := map[string]any{"model_type": wrapperOf(text["model_type"].(string)), "text_config": text, "vision_config": map[string]any{"depth": 2}, "image_token_id": 5,
		"tie_word_embeddings": text["tie_word_embeddings"]}
	change(outer, text)
	if raw, err = json.Marshal(outer); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ConfigName), raw, 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, safetensors.SingleName)
	values := map[string][]byte{"model.visual.patch.weight": make([]byte, 16), "mtp.norm.weight": make([]byte, 16)}
	infos, joined := map[string]safetensors.Info{}, map[string]bool{}
	for name := range values {
		infos[name] = safetensors.Info{Name: name, DType: "F32", Shape: []int64{4}}
	}
	f := openFile(t, file)
	for _, name := range slices.Sorted(slices.Values(f.Names())) {
		info, _ := f.Info(name)
		value := make([]byte, info.Bytes)
		if err := f.ReadAt(name, value, 0); err != nil {
			t.Fatal(err)
		}
		if rest, ok := strings.CutPrefix(name, "model."); ok {
			name = fmt.Sprintf(form, rest)
		}
		if fuse {
			name = togetherName(name)
		}
		before := infos[name]
		info.Name, values[name] = name, append(values[name], value...)
		if n := int64(0); strings.HasSuffix(name, "_proj") && len(info.Shape) == 2 {
			joined[name] = true
			if len(before.Shape) > 0 {
				n = before.Shape[0]
			}
			info.Shape = []int64{n + 1, info.Shape[0], info.Shape[1]} // of gate_up_proj a row of gates or of the others
		}
		infos[name] = info
	}
	var list []safetensors.Info
	for _, name := range slices.Sorted(maps.Keys(infos)) {
		info := infos[name]
		if strings.HasSuffix(name, ".gate_up_proj") && joined[name] {
			info.Shape = []int64{info.Shape[0] / 2, 2 * info.Shape[1], info.Shape[2]}
		}
		list = append(list, info)
	}
	if _, err := safetensors.WriteFile(t.Context(), file, list, nil, func(i int, from, to int64, dst []byte) error {
		width := int64(len(values[list[i].Name])) / list[i].Shape[0]
		copy(dst, values[list[i].Name][from*width:to*width])
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

var ofExpert = regexp.MustCompile(`\.experts\.\d+\.(gate|up|down)_proj\.weight$`)

// togetherName is the name of the tensor that holds an expert's: in order of names an expert's gate stands
// before its other half.
func togetherName(name string) string {
	found := ofExpert.FindStringSubmatch(name)
	if found == nil {
		return name
	}
	return ofExpert.ReplaceAllString(name, map[string]string{"gate": ".experts.gate_up_proj", "up": ".experts.gate_up_proj", "down": ".experts.down_proj"}[found[1]])
}

// Claim: the text part of a model that takes images has the weights of the text model, whichever
// of both forms of names its files have and whether experts are stored together; what is left out
// is said.
func TestTextPartsOfModelsThatTakeImages(t *testing.T) {
	for _, name := range []string{"qwen3-5", "qwen3-5-moe", "gemma4", "gemma4-small", "gemma4-experts", "ministral3"} {
		for form, fuse := range map[string]bool{"model.language_model.%s": true, "language_model.model.%s": false} {
			plain, err := OpenSource(caseFolder(t, ownCases, name), checkpoint.OpenOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer plain.Close()
			dir := caseFolder(t, ownCases, name)
			wrap(t, dir, form, fuse, func(_, _ map[string]any) {})
			src, err := OpenSource(dir, checkpoint.OpenOptions{})
			if err != nil {
				t.Fatal(form, err)
			}
			defer src.Close()
			if list := src.Info().Model.Reshaped(plain.Info().Model); len(list) > 0 {
				t.Error(list)
			}
			if notes := strings.Join(src.Info().Notes, " "); !strings.Contains(notes, "1 tensors of the part that reads images") || !strings.Contains(notes, "1 tensors of layers of multi-token prediction") {
				t.Errorf("notes %q", notes)
			}
			for _, x := range plain.Tensors() {
				n := elements(x.Shape) * checkpoint.Width(x.DType)
				a, b := make([]byte, n), make([]byte, n)
				if err := plain.Read(x.Name, checkpoint.Uncut(x.Shape), a); err != nil {
					t.Fatal(err)
				}
				if err := src.Read(x.Name, checkpoint.Uncut(x.Shape), b); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(a, b) {
					t.Errorf("%s: %s is not the same", form, x.Name)
				}
			}
		}
	}
}

// Claim: what such a config.json leaves open is refused.
func TestTextPartsRefuse(t *testing.T) {
	for want, change := range map[string]func(outer, text map[string]any){
		"text_config is missing; a qwen3_5 model must have it":                       func(outer, _ map[string]any) { delete(outer, "text_config") },
		`has the model_type "llama", but in a qwen3_5 model it must be qwen3_5_text`: func(_, text map[string]any) { text["model_type"] = "llama" },
		"tie_word_embeddings has different values":                                   func(outer, text map[string]any) { outer["tie_word_embeddings"] = text["tie_word_embeddings"] != true },
		"attn_output_gate": func(_, text map[string]any) { text["attn_output_gate"] = false },
		"secret_gate":      func(_, text map[string]any) { text["secret_gate"] = 2 },
		"mlp_only_layers":  func(_, text map[string]any) { text["mlp_only_layers"] = []int{0} },
	} {
		dir := caseFolder(t, ownCases, "qwen3-5")
		wrap(t, dir, "model.language_model.%s", false, change)
		if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Claim: what layers may not differ in is refused by name, and so are settings of Gemma 4's smaller models and of its
// mixture that do not fit; heads of full layers are read in both spellings.
func TestGemma4(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(ownCases, "gemma4", ConfigName))
	if err != nil {
		t.Fatal(err)
	}
	read := func(change func(c map[string]any)) (*Config, error) {
		var c map[string]any
		if err := json.Unmarshal(raw, &c); err != nil {
			t.Fatal(err)
		}
		change(c)
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		return ParseConfig("config.json", text)
	}
	want, err := read(func(map[string]any) {})
	if err != nil {
		t.Fatal(err)
	}
	got, err := read(func(c map[string]any) {
		delete(c, "per_layer_config")
		c["global_head_dim"], c["num_global_key_value_heads"] = want.Model.Full.KVChannels, want.Model.Full.NumQueryGroups
	})
	if err != nil || *got.Model.Full != *want.Model.Full {
		t.Errorf("%v, want %+v", err, want.Model.Full)
	}
	for says, change := range map[string]func(c map[string]any){
		"top_k_experts is missing":  func(c map[string]any) { c["enable_moe_block"] = true },
		"num_kv_shared_layers 1":    func(c map[string]any) { c["num_kv_shared_layers"] = 1 }, // the only full layer
		"num_kv_shared_layers is 2": func(c map[string]any) { c["num_kv_shared_layers"] = 2 },
		"vocab_size_per_layer_input": func(c map[string]any) {
			delete(c, "hidden_size_per_layer_input")
			delete(c, "vocab_size_per_layer_input")
		},
		"use_bidirectional_attention": func(c map[string]any) { c["use_bidirectional_attention"] = "all" },
		"per_layer_config of layer 0": func(c map[string]any) { c["per_layer_config"].(map[string]any)["0"] = map[string]any{"head_dim": 4} },
		"sliding_attention": func(c map[string]any) {
			c["layer_types"] = slices.Repeat([]string{"full_attention"}, want.Model.NumLayers)
		},
		"rope_type yarn": func(c map[string]any) {
			c["rope_parameters"].(map[string]any)["full_attention"] = map[string]any{"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 32}
		},
		"rope_parameters must have exactly two tables,": func(c map[string]any) { delete(c["rope_parameters"].(map[string]any), "full_attention") },
		"must have exactly two tables":                  func(c map[string]any) { c["rope_parameters"] = map[string]any{} },
		"rope_theta is missing": func(c map[string]any) {
			delete(c["rope_parameters"].(map[string]any)["full_attention"].(map[string]any), "rope_theta")
		},
		"per_layer_config names layer": func(c map[string]any) { c["per_layer_config"].(map[string]any)["77"] = map[string]any{} },
		"intermediate_size": func(c map[string]any) {
			for _, v := range c["per_layer_config"].(map[string]any) {
				v.(map[string]any)["intermediate_size"] = 4
			}
		},
	} {
		if c, err := read(change); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v %+v, want %q", err, c, says)
		}
	}
}

// Claim: files of Gemma 4's smaller models may have keys and values in layers that read those of others; these are left
// out, and the notes say so. Other tensors there are refused.
func TestGemma4SharedKeys(t *testing.T) {
	for name, says := range map[string]string{"model.layers.3.self_attn.k_proj.weight": "", "model.layers.2.self_attn.k_norm.weight": "", "model.layers.3.self_attn.kv_proj.weight": "is not part of the model that"} {
		dir := caseFolder(t, ownCases, "gemma4-small")
		added := damaged(t, dir, func(info *safetensors.Info, raw []byte) (*safetensors.Info, []byte) {
			if info.Name == "model.norm.weight" { // it is of the right length, whatever its name
				return &safetensors.Info{Name: name, DType: info.DType, Shape: info.Shape}, raw
			}
			return nil, nil
		})
		extra, err := os.ReadFile(filepath.Join(added, safetensors.SingleName))
		if err != nil {
			t.Fatal(err)
		}
		for shard, from := range map[string]string{"model-00001-of-00002.safetensors": filepath.Join(dir, safetensors.SingleName), "model-00002-of-00002.safetensors": ""} {
			if from != "" {
				if extra, err := os.ReadFile(from); err != nil || os.WriteFile(filepath.Join(dir, shard), extra, 0o600) != nil {
					t.Fatal(err)
				}
			} else if err := os.WriteFile(filepath.Join(dir, shard), extra, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		index := map[string]string{name: "model-00002-of-00002.safetensors"}
		for _, n := range openFile(t, filepath.Join(dir, safetensors.SingleName)).Names() {
			index[n] = "model-00001-of-00002.safetensors"
		}
		text, _ := json.Marshal(map[string]any{"weight_map": index})
		if err := errors.Join(os.WriteFile(filepath.Join(dir, safetensors.IndexName), text, 0o600), os.Remove(filepath.Join(dir, safetensors.SingleName))); err != nil {
			t.Fatal(err)
		}
		src, err := OpenSource(dir, checkpoint.OpenOptions{})
		if says != "" {
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if notes := strings.Join(src.Info().Notes, " "); !strings.Contains(notes, "1 tensors of keys and values") {
			t.Errorf("notes %q", notes)
		}
		_ = src.Close()
	}
}

// wrapperOf is the model_type of models that have a text part of this one.
func wrapperOf(family string) string {
	for outer, inner := range wrappers {
		if slices.Contains(inner, family) {
			return outer
		}
	}
	return ""
}
