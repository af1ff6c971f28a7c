package hf

import (
	"math"
	"path/filepath"

	"monotron/tokenizer"
)

// specialNames are config.json's names of ids of special tokens.
var specialNames = []string{"bos_token_id", "eos_token_id", "pad_token_id"}

// specials are the ids of special tokens as config.json has them, an id or a list: those that a config.json next to
// the tokenizer names; else those that the source says; else those of the source's tokenizer. Others are null, not
// absent, which would mean transformers' defaults.
func (w *writing) specials() (map[string]any, error) {
	ids := map[string]any{}
	for _, name := range specialNames {
		ids[name] = nil
	}
	info := w.src.Info()
	if w.o.Tokenizer != "" {
		config, err := readObject(filepath.Join(w.o.Tokenizer, ConfigName))
		if err != nil {
			return nil, err
		}
		for _, name := range specialNames {
			ids[name] = config[name]
		}
	} else if t, err := tokenizer.FromConfig(info.Tokenizer); err == nil && !info.Tokenizer.IsZero() { // else writeTokenizer says what is wrong
		for name, id := range tokenizer.Specials(t) {
			ids[name] = id
		}
	}
	for name, list := range info.Specials {
		if _, known := ids[name]; !known || len(list) == 0 || w.o.Tokenizer != "" && ids[name] != nil {
			continue
		}
		if ids[name] = list[0]; len(list) > 1 {
			ids[name] = list
		}
	}
	return ids, nil
}

// specialsOf are the ids of special tokens that generation_config.json of a folder says, or else its config.json; nil
// where neither does.
func specialsOf(dir string) map[string][]int32 {
	found := map[string][]int32{}
	for _, file := range []string{GenerationName, ConfigName} {
		config, err := readObject(filepath.Join(dir, file))
		if err != nil {
			continue
		}
		for _, name := range specialNames {
			list, several := config[name].([]any)
			if !several {
				list = []any{config[name]}
			}
			var ids []int32
			for _, v := range list {
				if id, ok := v.(float64); ok && id >= 0 && id == math.Trunc(id) && id <= math.MaxInt32 {
					ids = append(ids, int32(id))
				}
			}
			if len(found[name]) == 0 && len(ids) > 0 {
				found[name] = ids
			}
		}
	}
	if len(found) == 0 {
		return nil
	}
	return found
}
