package ggvocab

import (
	"encoding/json"
	"slices"
	"strings"
)

// pre is a way to cut a text before merges, by llama.cpp's names of it.
type pre struct {
	names        []string // the first is written
	steps        []string // of tokenizer.json's pre_tokenizer: see step.text
	ignoreMerges bool     // ignore_merges: a piece that is a token is not merged
	addBOS       bool     // where the metadata does not say so
}

// Regular expressions as tokenizer.json files spell them.
const (
	gpt2Words  = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)`
	gpt2Full   = gpt2Words + `|\s+`
	endings    = `(?i:'s|'t|'re|'ve|'m|'ll|'d)`
	marksWhite = `| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	lowerWord  = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+`
	upperWord  = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*`
	marksSlash = `| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`

	llama3Words = endings + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}` + marksWhite
)

// pres are the patterns that are read and written.
var pres = []pre{
	{names: []string{"gpt-2", "phi-2", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "gigachat", "a.x-4.0", "mellum", "modern-bert", "mpt", "olmo", "jais", "trillion", "granite-docling"},
		steps: []string{"ByteLevel words"}},
	{names: []string{"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"},
		steps: []string{"Split " + llama3Words, "ByteLevel"}, ignoreMerges: true, addBOS: true},
	{names: []string{"glm4", "glm5", "chatglm-bpe"}, steps: []string{"Split " + llama3Words, "ByteLevel"}, ignoreMerges: true},
	{names: []string{"dbrx", "smaug-bpe"}, steps: []string{"Split " + llama3Words, "ByteLevel"}},
	{names: []string{"qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "stablelm2", "hunyuan", "solar-open", "megrez", "grok-2"},
		steps: []string{"Split " + endings + `|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}` + marksWhite, "ByteLevel"}},
	{names: []string{"qwen35"},
		steps: []string{"Split " + endings + `|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`, "ByteLevel"}},
	{names: []string{"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"},
		steps: []string{"Digits", "ByteLevel words"}},
	{names: []string{"tekken"}, steps: []string{"Split " + lowerWord + `|` + upperWord + `|\p{N}` + marksSlash, "ByteLevel"}, ignoreMerges: true, addBOS: true},
	{names: []string{"gpt-4o", "llama4", "kanana2", "minimax-m2"},
		steps: []string{"Split " + lowerWord + endings + `?|` + upperWord + endings + `?|\p{N}{1,3}` + marksSlash, "ByteLevel"}},
	{names: []string{"deepseek-v3", "hunyuan-dense"},
		steps: []string{`Split \p{N}{1,3}`, `Split [一-龥぀-ゟ゠-ヿ]+`,
			"Split [!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+", "ByteLevel"}},
	{names: []string{"bloom", "poro-chat", "gpt3-finnish"}, steps: []string{`Split  ?[^(\s|.,!?…。，、।۔،)]+`, "ByteLevel"}},
	{names: []string{"default"},
		steps: []string{"Split [\\p{P}\\$\\+<=>\\^~\\|]+", "Split " + gpt2Full, `Split \p{N}+`, "Split [0-9][0-9][0-9]", "ByteLevel"}},
}

// preNamed finds a pattern by a name.
func preNamed(name string) *pre {
	for i := range pres {
		if slices.Contains(pres[i].names, name) {
			return &pres[i]
		}
	}
	return nil
}

// preOf finds the pattern that a tokenizer.json's pre_tokenizer is; nil: it is not one of
// those that llama.cpp is known to have.
func preOf(raw json.RawMessage) *pre {
	steps := stepsOf(raw, nil)
	for i := range pres {
		if slices.Equal(pres[i].steps, steps) {
			return &pres[i]
		}
	}
	return nil
}

// step is one pre-tokenizer of a tokenizer.json.
type step struct {
	Type          string            `json:"type"`
	Pretokenizers []json.RawMessage `json:"pretokenizers,omitempty"`
	Pattern       *pattern          `json:"pattern,omitempty"`
	Behavior      string            `json:"behavior,omitempty"`
	Invert        *bool             `json:"invert,omitempty"`
	Prefix        *bool             `json:"add_prefix_space,omitempty"`
	UseRegex      *bool             `json:"use_regex,omitempty"`
	Individual    *bool             `json:"individual_digits,omitempty"`
}

type pattern struct {
	Regex string `json:"Regex"`
}

// stepsOf adds what a pre_tokenizer does, a text a step.
func stepsOf(raw json.RawMessage, list []string) []string {
	var s step
	if json.Unmarshal(raw, &s) != nil {
		return append(list, "unreadable")
	}
	if s.Type != "Sequence" {
		return append(list, s.text())
	}
	for _, inner := range s.Pretokenizers {
		if len(list) < 16 { // more than any pattern has
			list = stepsOf(inner, list)
		}
	}
	return list
}

// plainSpelling replaces what some files write otherwise in a regular expression.
var plainSpelling = strings.NewReplacer("\r", `\r`, "\n", `\n`, `\"`, `"`)

// text is what a step does, where the settings are those that llama.cpp has too.
func (s *step) text() string {
	is := func(b *bool, otherwise bool) bool {
		if b == nil {
			return otherwise
		}
		return *b
	}
	switch {
	case s.Type == "ByteLevel" && !is(s.Prefix, true) && is(s.UseRegex, true):
		return "ByteLevel words"
	case s.Type == "ByteLevel" && !is(s.Prefix, true):
		return "ByteLevel"
	case s.Type == "Digits" && is(s.Individual, false):
		return "Digits"
	case s.Type == "Split" && s.Pattern != nil && (s.Behavior == "Isolated" && !is(s.Invert, false) || s.Behavior == "Removed" && is(s.Invert, false)):
		return "Split " + plainSpelling.Replace(s.Pattern.Regex)
	}
	return "another " + s.Type
}

// json is the pre_tokenizer of a tokenizer.json.
func (p *pre) json() map[string]any {
	var list []any
	for _, text := range p.steps {
		kind, regex, _ := strings.Cut(text, " ")
		switch kind {
		case "Split":
			list = append(list, map[string]any{"type": "Split", "pattern": map[string]any{"Regex": regex}, "behavior": "Isolated", "invert": false})
		case "Digits":
			list = append(list, map[string]any{"type": "Digits", "individual_digits": true})
		case "ByteLevel":
			list = append(list, map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": regex == "words"})
		}
	}
	return map[string]any{"type": "Sequence", "pretokenizers": list}
}
