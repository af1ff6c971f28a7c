package train

import (
	"bytes"
	"encoding/json"
	"strings"
)

// FileNames are the names of Files.
var FileNames = []string{"merges.txt", "tokenizer.json", "tokenizer_config.json", "vocab.json"}

// Files are the vocabulary in every form that others read: GPT-2's vocab.json
// and merges.txt, and tokenizer.json with tokenizer_config.json. pattern is the
// regular expression words were cut by, "" for GPT-2's. The last special token
// named end ends a document.
func (r *Result) Files(pattern string, special []string, end string) map[string][]byte {
	var merges strings.Builder
	merges.WriteString("#version: 0.2\n")
	pairs := make([][2]string, len(r.Merges))
	for i, m := range r.Merges {
		pairs[i] = [2]string{r.Tokens[m[0]], r.Tokens[m[1]]}
		merges.WriteString(pairs[i][0] + " " + pairs[i][1] + "\n")
	}
	names := map[string]any{"tokenizer_class": "PreTrainedTokenizerFast"}
	if end != "" {
		names["eos_token"] = end
	}
	return map[string][]byte{
		"vocab.json":            r.vocab(),
		"merges.txt":            []byte(merges.String()),
		"tokenizer.json":        r.tokenizerJSON(pattern, special, pairs),
		"tokenizer_config.json": spell(names),
	}
}

// vocab is the JSON object of tokens in the order of their ids.
func (r *Result) vocab() []byte {
	var b bytes.Buffer
	b.WriteByte('{')
	for id, token := range r.Tokens {
		if id > 0 {
			b.WriteByte(',')
		}
		b.Write(bytes.TrimSuffix(spell(token), []byte("\n")))
		b.WriteByte(':')
		b.Write(bytes.TrimSuffix(spell(id), []byte("\n")))
	}
	b.WriteString("}\n")
	return b.Bytes()
}

type object = map[string]any

func (r *Result) tokenizerJSON(pattern string, special []string, pairs [][2]string) []byte {
	added := []object{}
	for id, s := range special {
		added = append(added, object{"id": id, "content": s, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true})
	}
	level := func(regex bool) object {
		return object{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": regex}
	}
	pre := level(true)
	if pattern != "" {
		split := object{"type": "Split", "pattern": object{"Regex": pattern}, "behavior": "Isolated", "invert": false}
		pre = object{"type": "Sequence", "pretokenizers": []object{split, level(false)}}
	}
	model := object{
		"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil, "end_of_word_suffix": nil,
		"fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
		"vocab": json.RawMessage(r.vocab()), "merges": pairs,
	}
	return spell(object{
		"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": added, "normalizer": nil,
		"pre_tokenizer": pre, "post_processor": nil, "decoder": level(true), "model": model,
	})
}

// spell is JSON with <, > and & as they are.
func spell(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("train: a plain value did not become JSON: " + err.Error())
	}
	return b.Bytes()
}
