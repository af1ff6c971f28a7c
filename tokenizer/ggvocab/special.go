package ggvocab

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode"

	"monotron/internal/gguf"
)

// specials are the tokens with a meaning, by tokenizer_config.json's names and GGUF's, in
// the order in which llama.cpp's converter goes by them.
var specials = []struct{ name, key string }{
	{"bos", "bos_token_id"}, {"eos", "eos_token_id"}, {"unk", "unknown_token_id"}, {"sep", "seperator_token_id"},
	{"pad", "padding_token_id"}, {"cls", "cls_token_id"}, {"mask", "mask_token_id"},
}

// templateKey holds the chat template.
const templateKey = "tokenizer.chat_template"

// config is the tokenizer_config.json of a file.
func (r *reading) config() map[string]any {
	c := map[string]any{"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": false}
	for _, s := range specials {
		if id := r.id(s.key); id >= 0 {
			c[s.name+"_token"] = r.tokens[id]
		}
	}
	for _, key := range []string{"add_bos_token", "add_eos_token"} {
		if b, ok := value(r, key, gguf.Value.Bool); ok {
			c[key] = b
		}
	}
	if v, ok := r.f.Value(templateKey); ok {
		if text, ok := v.String(); ok {
			c["chat_template"] = text
			if v, ok := r.f.Value(templateKey + ".tool_use"); ok {
				tools, _ := v.String()
				c["chat_template"] = []any{map[string]any{"name": "default", "template": text}, map[string]any{"name": "tool_use", "template": tools}}
			}
		} else {
			r.fail("%s: the file has a value of type %s, which is not valid for this key", templateKey, v.Kind())
		}
	}
	return c
}

// Specials are the ids of a file's special tokens by config.json's names; the ids that end
// a turn are among those of eos_token_id. nil where a file names none.
func Specials(f *gguf.File) (ids map[string][]int32) {
	for _, s := range slices.Concat(specials, turnEnds) {
		v, ok := f.Value(prefix + s.key)
		if !ok {
			continue
		}
		if n, ok := v.Int(); ok && n >= 0 && n < maxTokens {
			if ids == nil {
				ids = map[string][]int32{}
			}
			name := s.name + "_token_id"
			ids[name] = append(ids[name], int32(n))
		}
	}
	return ids
}

// turnEnds are tokens that end a turn, and so an answer.
var turnEnds = []struct{ name, key string }{{"eos", "eot_token_id"}, {"eos", "eom_token_id"}}

// AddsBOS reports whether llama.cpp puts bos before each text.
func AddsBOS(f *gguf.File) bool {
	r := &reading{f: f}
	p := preNamed(r.text("pre"))
	return r.truth("add_bos_token", r.text("model") == "llama" || p != nil && p.addBOS)
}

// special adds the special ids, whether bos and eos go around a text, and the chat templates.
func (w *writing) special() error {
	w.config = orEmpty(w.config)
	around := w.postProcessor()
	ids := w.specialIDs()
	for _, s := range append(specials, struct{ name, key string }{"eot", "eot_token_id"}) {
		if id, ok := ids[s.name]; ok && !(w.Model == Gemma4 && s.name == "eot") {
			w.add(prefix+s.key, uint32(id))
		}
	}
	for _, name := range []string{"bos", "eos", "sep"} {
		on, ok := around[name]
		if given, is := w.config["add_"+name+"_token"].(bool); !ok && is {
			on, ok = given, true
		}
		ok = ok || name == "bos" && w.addBOS
		if name == "bos" && w.Model == Gemma4 {
			on, ok = true, true
		}
		if ok {
			w.add(prefix+"add_"+name+"_token", on)
		}
	}
	if w.Spaces != nil && w.scores != nil {
		w.add(prefix+"add_space_prefix", *w.Spaces)
	} else if given, ok := w.config["add_prefix_space"].(bool); ok {
		w.add(prefix+"add_space_prefix", given)
	}
	w.templates()
	return nil
}

// specialIDs are the ids of tokens with a meaning: those that tokenizer_config.json names
// and tokenizer.json adds, then those that config.json says.
func (w *writing) specialIDs() map[string]int {
	ids := map[string]int{}
	byContent := map[string]int{}
	if w.json != nil {
		for _, a := range w.json.Added {
			if _, there := byContent[a.Content]; !there {
				byContent[a.Content] = a.ID
			}
		}
	} else if w.scores == nil { // GPT-2's two files
		for id, token := range w.tokens {
			byContent[token] = id
		}
	}
	for _, s := range append(specials, struct{ name, key string }{"eot", "eot_token_id"}) {
		if id, ok := byContent[w.token(s.name)]; ok && w.token(s.name) != "" {
			ids[s.name] = id
		} else if id, ok := w.Config[s.name+"_token_id"].(float64); ok && id >= 0 && id < float64(w.Size) && id == math.Trunc(id) {
			ids[s.name] = int(id)
		}
	}
	return ids
}

// postProcessing is the part of a post_processor that says what goes around a text.
type postProcessing struct {
	Type       string           `json:"type"`
	Processors []postProcessing `json:"processors"`
	Single     []templatePart   `json:"single"`
	Pair       []templatePart   `json:"pair"`
}

type templatePart struct {
	SpecialToken struct {
		ID string `json:"id"`
	} `json:"SpecialToken"`
	Sequence struct {
		ID string `json:"id"`
	} `json:"Sequence"`
}

// postProcessor finds, as llama.cpp's converter does, which tokens the post_processor puts
// around a text; tokens that tokenizer_config.json does not name are named by it.
func (w *writing) postProcessor() map[string]bool {
	around := map[string]bool{}
	if w.json == nil || len(w.json.PostProcessor) == 0 || string(w.json.PostProcessor) == "null" {
		return around
	}
	var p postProcessing
	if err := json.Unmarshal(w.json.PostProcessor, &p); err != nil {
		w.Notes = append(w.Notes, fmt.Sprintf("tokenizer.json: post_processor: %v; it is left out", err))
		return around
	}
	// One processor, or several in a row.
	list := p.Processors
	if list == nil {
		list = []postProcessing{p}
	}
	for _, p := range list {
		switch p.Type {
		case "ByteLevel":
			for _, name := range []string{"bos", "eos"} {
				if _, there := around[name]; !there {
					around[name] = false
				}
			}
		case "RobertaProcessing":
			around["bos"], around["eos"], around["sep"] = true, true, true
		case "TemplateProcessing":
			w.template(&p, around)
		}
	}
	return around
}

// template reads a TemplateProcessing.
func (w *writing) template(p *postProcessing, around map[string]bool) {
	// A single text: its first and last special tokens.
	name := func(list []templatePart, at int) string { return list[at].SpecialToken.ID }
	first, last := "", ""
	if len(p.Single) > 1 {
		if first = name(p.Single, 0); first != "" {
			if w.token("bos") == "" {
				w.config["bos_token"] = first
			}
			around["bos"] = first == w.token("bos") || first == w.token("cls")
		}
		if last = name(p.Single, len(p.Single)-1); last != "" {
			if eos := w.token("eos"); last != eos {
				if eos != "" {
					w.config["eot_token"] = eos
				}
				w.config["eos_token"] = last
			}
			around["eos"] = true
		}
	}
	// A pair without those two: what stands between its texts.
	pair := p.Pair
	if len(pair) > 0 && first != "" && name(pair, 0) == first {
		pair = pair[1:]
	}
	if len(pair) > 0 && last != "" && name(pair, len(pair)-1) == last {
		pair = pair[:len(pair)-1]
	}
	if len(pair) < 3 || pair[0].Sequence.ID != "A" || pair[len(pair)-1].Sequence.ID != "B" {
		return
	}
	separators := []string{w.token("sep"), w.token("eos")}
	inner := name(pair, 1)
	sep := inner != "" && slices.Contains(separators, inner) && last == ""
	if len(pair) == 4 {
		second := name(pair, 2)
		sep = sep || second != "" && slices.Contains(separators, second)
	}
	around["sep"] = sep
}

// templates adds the chat template, or of several by name all.
func (w *writing) templates() {
	// In tokenizer_config.json, one or several by name; else the file of its own.
	switch t := w.config["chat_template"].(type) {
	case string:
		w.add(templateKey, t)
	case []any:
		var names []string
		for _, v := range t {
			entry, _ := v.(map[string]any)
			name, _ := entry["name"].(string)
			text, ok := entry["template"].(string)
			name = plainName(name)
			switch {
			case !ok || name == "":
			case name == "default":
				w.add(templateKey, text)
			case !slices.Contains(names, name):
				names = append(names, name)
				w.add(templateKey+"."+name, text)
			}
		}
		if len(names) > 0 {
			w.add("tokenizer.chat_templates", names)
		}
	default:
		if text := w.files["chat_template.jinja"]; text != nil {
			w.add(templateKey, string(text))
		}
	}
}

// plainName has _ for each character that is neither an ASCII letter nor a digit.
func plainName(name string) string {
	return strings.Map(func(c rune) rune {
		if c < 0x80 && (unicode.IsLetter(c) || unicode.IsDigit(c)) {
			return c
		}
		return '_'
	}, name)
}

func unmarshal(name string, data []byte, into any) error {
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
