package ggvocab

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Gemma4 is a kind of tokenizer of llama.cpp's: a BPE over characters with its merges, where the kind llama has scores.
const Gemma4 = "gemma4"

// visible are tokens of Gemma 4 that a parser of answers must see: they are not control tokens.
var visible = strings.Fields(`<|channel> <channel|> <|tool_call> <tool_call|> <|tool_response> <tool_response|> <|"|>`)

// gemma4 writes a tokenizer.json of that kind, with types of tokens as llama.cpp's converter gives them: those that
// tokenizer_config.json names are control tokens, others that are added behind the vocabulary are the user's.
func (w *writing) gemma4() error {
	var vocab map[string]int
	if err := json.Unmarshal(w.json.Model.Vocab, &vocab); err != nil {
		return fmt.Errorf("tokenizer.json: the vocabulary: %w", err)
	}
	merges, err := mergeLines(w.json.Model.Merges)
	if err != nil {
		return fmt.Errorf("tokenizer.json: %w", err)
	}
	w.reserve()
	named := w.meant()
	kind := func(token string, otherwise int32) int32 {
		switch {
		case slices.Contains(visible, token):
			return userDefined
		case named[token]:
			return control
		}
		return otherwise
	}
	for token, id := range vocab {
		if err := w.set(id, token, kind(token, normal)); err != nil {
			return fmt.Errorf("tokenizer.json: %w", err)
		}
	}
	for _, a := range w.json.Added {
		if _, there := vocab[a.Content]; there {
			continue
		}
		if err := w.set(a.ID, a.Content, kind(a.Content, userDefined)); err != nil {
			return fmt.Errorf("tokenizer.json: %w", err)
		}
	}
	// Bytes; no score is used.
	for b := range 256 {
		if id, ok := vocab[byteName(b)]; ok {
			w.kinds[id] = byteToken
		}
	}
	w.scores = slices.Repeat([]float32{addedScore}, w.Size)
	w.add(prefix+"model", Gemma4)
	w.add(prefix+"tokens", w.tokens)
	w.add(prefix+"scores", w.scores)
	w.add(prefix+"token_type", w.kinds)
	w.add(prefix+"merges", merges)
	return nil
}

// meant are the tokens to which tokenizer_config.json gives any meaning.
func (w *writing) meant() map[string]bool {
	list := w.named()
	for key, v := range w.config {
		if token := content(v); strings.HasSuffix(key, "_token") && token != "" {
			list[token] = true
		}
	}
	for _, key := range []string{"extra_special_tokens", "model_specific_special_tokens"} {
		switch v := w.config[key].(type) {
		case []any:
			for _, one := range v {
				list[content(one)] = true
			}
		case map[string]any:
			for _, one := range v {
				list[content(one)] = true
			}
		}
	}
	return list
}
