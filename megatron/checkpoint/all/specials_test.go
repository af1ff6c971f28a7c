package all

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"monotron/megatron/checkpoint"
	"monotron/megatron/spec"
	"monotron/tokenizer"
)

// spoken is a model whose run had a tokenizer.
type spoken struct {
	*numbered
	tokenizer tokenizer.Config
	specials  map[string][]int32
}

func (s *spoken) Info() checkpoint.Info {
	return checkpoint.Info{Path: "memory", Model: s.model, Tokenizer: s.tokenizer, Specials: s.specials}
}

// Claim: transformers ends a text where the run's tokenizer does: config.json and generation_config.json have the ids
// of the tokenizer in use, and a folder's own ids, several too, come back from our format and Megatron's. Without a tokenizer they are null.
func TestSpecialTokensTravel(t *testing.T) {
	m := &spec.Model{NumLayers: 1, HiddenSize: 4, FFNHiddenSize: 16, NumAttentionHeads: 1, NumQueryGroups: 1, KVChannels: 4, VocabSize: 50257, PaddedVocabSize: 50257, MaxPositions: 8, Context: 8,
		Position: spec.PositionLearned, Normalization: spec.LayerNorm, NormEpsilon: 1e-5, WindowLeft: -1, Activation: spec.GeluTanh, LinearBias: true, QKVBias: true, Tied: true, InitStd: 0.02, EmbeddingInitStd: 0.02}
	gpt2 := tokenizer.Config{Type: "GPT2BPETokenizer"}
	for name, c := range map[string]struct {
		src  *spoken
		want map[string]any
	}{
		"tokenizer": {&spoken{newNumbered(m), gpt2, nil}, map[string]any{"bos_token_id": 50256.0, "eos_token_id": 50256.0, "pad_token_id": nil}},
		"ids of the source": {&spoken{newNumbered(m), gpt2, map[string][]int32{"eos_token_id": {50256, 11}, "pad_token_id": {7}}},
			map[string]any{"bos_token_id": 50256.0, "eos_token_id": []any{50256.0, 11.0}, "pad_token_id": 7.0}},
		"none": {&spoken{newNumbered(m), tokenizer.Config{}, nil}, map[string]any{"bos_token_id": nil, "eos_token_id": nil, "pad_token_id": nil}},
	} {
		t.Run(name, func(t *testing.T) {
			direct := filepath.Join(t.TempDir(), "direct")
			write := func(format checkpoint.Format, path string, src checkpoint.Source) {
				t.Helper()
				if _, err := Write(context.Background(), format, path, src, checkpoint.WriteOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			write(checkpoint.HF, direct, c.src)
			// Through every format that is read again, and from it to Hugging Face's.
			folders := []string{direct}
			for _, format := range []checkpoint.Format{checkpoint.Native, checkpoint.MegatronTorch, checkpoint.MegatronTorchDist} {
				kept, through := filepath.Join(t.TempDir(), "kept"), filepath.Join(t.TempDir(), "through-"+string(format))
				write(format, kept, open(t, direct))
				write(checkpoint.HF, through, open(t, kept))
				folders = append(folders, through)
			}
			for _, folder := range folders {
				for _, file := range []string{"config.json", "generation_config.json"} {
					text, err := os.ReadFile(filepath.Join(folder, file))
					if err != nil {
						t.Fatal(err)
					}
					var all map[string]any
					if err := json.Unmarshal(text, &all); err != nil {
						t.Fatal(err)
					}
					got := map[string]any{}
					for key := range c.want {
						if value, found := all[key]; found {
							got[key] = value
						}
					}
					if !reflect.DeepEqual(got, c.want) {
						t.Errorf("%s of %s: %v, want %v", file, filepath.Base(folder), got, c.want)
					}
				}
			}
		})
	}
}
