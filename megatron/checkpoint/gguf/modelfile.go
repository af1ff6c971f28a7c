package gguf

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"monotron/internal/gguf"
	"monotron/tokenizer/chat"
	"monotron/tokenizer/ggvocab"
)

// ModelfileName is the file that `ollama create` reads.
const ModelfileName = "Modelfile"

// Modelfile makes the text that configures Ollama for the GGUF file at path, in the same
// folder: the chat template in Ollama's own language and the texts at which an answer
// ends. Notes say what could not be translated.
func Modelfile(path string) (text string, notes []string, err error) {
	f, err := gguf.Open(path)
	if err != nil {
		return "", nil, err
	}
	defer f.Close()
	// The model.
	var b strings.Builder
	fmt.Fprintf(&b, "FROM ./%s\n", filepath.Base(path))
	// The template, as Ollama renders it.
	var t *turns
	source, bos := chat.Source{}, ""
	if ggvocab.Has(f) {
		if err := source.ReadFolder(path); err != nil {
			return "", nil, err
		}
		if ggvocab.AddsBOS(f) {
			bos = source.BOS
		}
	}
	switch {
	case source.Text == "":
		notes = append(notes, "neither the model nor the Modelfile has a chat template, so Ollama will pass on prompts unchanged")
		b.WriteString("TEMPLATE \"\"\"{{ .Prompt }}\"\"\"\n")
	default:
		if t, err = turnsOf(source, bos); err != nil {
			notes = append(notes, fmt.Sprintf("the chat template cannot be expressed in Ollama's template language (%v), so the Modelfile has none; Ollama then uses its own version of the template in the GGUF file, if it knows that template", err))
		} else {
			fmt.Fprintf(&b, "TEMPLATE \"\"\"%s\"\"\"\n", t.template())
		}
	}
	// Where an answer ends.
	for _, stop := range stops(f, t) {
		fmt.Fprintf(&b, "PARAMETER stop \"%s\"\n", stop)
	}
	return b.String(), notes, nil
}

// stops are the texts at which an answer ends: those of the ids that end a text or a turn,
// and what the template puts behind an answer, where that is a token.
func stops(f *gguf.File, t *turns) (list []string) {
	v, _ := f.Value("tokenizer.ggml.tokens")
	tokens, _ := v.Strings()
	add := func(text string) {
		if text != "" && !strings.ContainsAny(text, "\"\n\r") && !slices.Contains(list, text) {
			list = append(list, text)
		}
	}
	for _, id := range ggvocab.Specials(f)["eos_token_id"] {
		if int(id) < len(tokens) {
			add(tokens[id])
		}
	}
	if t != nil {
		if end := strings.TrimSpace(t.assistant[1]); slices.Contains(tokens, end) {
			add(end)
		}
	}
	return list
}

// conversation renders messages, given as alternating roles and texts.
func conversation(t *chat.Template, generation bool, roleAndText ...string) (string, error) {
	var messages []json.RawMessage
	for i := 0; i < len(roleAndText); i += 2 {
		raw, err := json.Marshal(map[string]string{"role": roleAndText[i], "content": roleAndText[i+1]})
		if err != nil {
			return "", err
		}
		messages = append(messages, raw)
	}
	return t.Render(messages, chat.Options{AddGenerationPrompt: generation})
}
