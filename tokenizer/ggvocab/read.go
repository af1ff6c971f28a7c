package ggvocab

import (
	"encoding/json"
	"fmt"
	"regexp"

	"monotron/internal/exitcode"
	"monotron/internal/gguf"
)

// prefix of the metadata of a tokenizer.
const prefix = "tokenizer.ggml."

// Types of tokens, as GGUF and SentencePiece number them.
const (
	normal      = 1
	unknown     = 2
	control     = 3
	userDefined = 4
	unused      = 5
	byteToken   = 6
)

// maxTokens bounds a vocabulary.
const maxTokens = 1 << 24

// File is one of the files of a Hugging Face folder.
type File struct {
	Name string
	Data []byte
}

// reading is the tokenizer of a GGUF file.
type reading struct {
	f      *gguf.File
	tokens []string
	kinds  []int64 // nil: all are normal
	ids    map[string]int
	err    error
}

// Path reads the tokenizer of the GGUF file path as the files of a folder.
func Path(path string) ([]File, error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Files(f)
}

// Has reports whether a file holds a tokenizer that Files knows.
func Has(f *gguf.File) bool {
	v, _ := f.Value(prefix + "model")
	model, _ := v.String()
	return model == "gpt2" || model == "llama" || model == Gemma4
}

// Files makes tokenizer.json and tokenizer_config.json of a file's metadata. A kind of
// tokenizer that is not known is exitcode.BadData.
func Files(f *gguf.File) ([]File, error) {
	// The vocabulary, and the model by its kind.
	r := &reading{f: f}
	r.readTokens()
	model := r.text("model")
	var object map[string]any
	switch {
	case r.err != nil:
	case model == "gpt2":
		object = r.byteLevel()
	case model == "llama" || model == Gemma4:
		object = r.sentencePiece(model)
	case model == "":
		r.fail("the file has no tokenizer; give a tokenizer with --tokenizer-type and --tokenizer-model")
	default:
		r.fail("%smodel %q is not supported; it must be gpt2, llama or gemma4; give another tokenizer with --tokenizer-type and --tokenizer-model", prefix, model)
	}
	if r.err != nil {
		return nil, r.err
	}
	// What both kinds have.
	object["version"] = "1.0"
	object["added_tokens"] = r.added()
	config := r.config()
	if r.err != nil {
		return nil, r.err
	}
	// The two files.
	var list []File
	for _, part := range []struct {
		name string
		is   any
	}{{"tokenizer.json", object}, {"tokenizer_config.json", config}} {
		data, err := json.MarshalIndent(part.is, "", " ")
		if err != nil {
			return nil, exitcode.With(exitcode.Internal, err)
		}
		list = append(list, File{part.name, append(data, '\n')})
	}
	return list, nil
}

func (r *reading) fail(format string, args ...any) {
	if r.err == nil {
		r.err = exitcode.Errorf(exitcode.BadData, "%s: %w", r.f.Path, fmt.Errorf(format, args...))
	}
}

// value finds metadata of the tokenizer; a value of another kind is an error.
func value[T any](r *reading, key string, read func(gguf.Value) (T, bool)) (v T, ok bool) {
	found, ok := r.f.Value(prefix + key)
	if !ok {
		return v, false
	}
	if v, ok = read(found); !ok {
		r.fail("%s%s: the file has a value of type %s, which is not valid for this key", prefix, key, found.Kind())
	}
	return v, ok
}

func (r *reading) text(key string) string {
	s, _ := value(r, key, gguf.Value.String)
	return s
}

func (r *reading) truth(key string, otherwise bool) bool {
	if b, ok := value(r, key, gguf.Value.Bool); ok {
		return b
	}
	return otherwise
}

// id is a special token's id; -1 where there is none.
func (r *reading) id(key string) int {
	n, ok := value(r, key, gguf.Value.Int)
	if !ok || n < 0 || n == 1<<32-1 { // llama.cpp's none
		return -1
	}
	if n >= int64(len(r.tokens)) {
		r.fail("%s%s is %d, but the ids of the vocabulary are 0 to %d", prefix, key, n, len(r.tokens)-1)
		return -1
	}
	return int(n)
}

// readTokens reads tokens and their types.
func (r *reading) readTokens() {
	if v, ok := r.f.Value(prefix + "tokens"); ok && v.Len() > maxTokens {
		r.fail("the vocabulary has %d tokens; at most %d are supported", v.Len(), maxTokens)
		return
	}
	r.tokens, _ = value(r, "tokens", gguf.Value.Strings)
	r.kinds, _ = value(r, "token_type", gguf.Value.Ints)
	if r.kinds != nil && len(r.kinds) != len(r.tokens) {
		r.fail("%stoken_type has %d entries, but the vocabulary has %d tokens", prefix, len(r.kinds), len(r.tokens))
	}
	r.ids = make(map[string]int, len(r.tokens))
	for id, token := range r.tokens {
		if _, twice := r.ids[token]; !twice {
			r.ids[token] = id
		}
	}
}

func (r *reading) kind(id int) int64 {
	if r.kinds == nil {
		return normal
	}
	return r.kinds[id]
}

// filler are the names of ids that no token has.
var filler = regexp.MustCompile(`^\[PAD\d+\]$`)

// vocabulary lists the tokens by name, without those that only fill ids up.
func (r *reading) vocabulary() map[string]int {
	vocab := make(map[string]int, len(r.tokens))
	for token, id := range r.ids {
		if r.kind(id) != unused || !filler.MatchString(token) {
			vocab[token] = id
		}
	}
	return vocab
}

// added are the tokens that are found in a text before anything else.
func (r *reading) added() []map[string]any {
	list := []map[string]any{}
	for id, token := range r.tokens {
		kind := r.kind(id)
		if kind != control && kind != userDefined && kind != unknown || token == "" || r.ids[token] != id {
			continue
		}
		list = append(list, map[string]any{"id": id, "content": token, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": kind != userDefined})
	}
	return list
}

// byteLevel is the tokenizer.json of a model gpt2.
func (r *reading) byteLevel() map[string]any {
	name := r.text("pre")
	if name == "" {
		name = "default"
	}
	p := preNamed(name)
	if p == nil {
		r.fail("%spre %q, the rule by which texts are split, is not supported; give another tokenizer with --tokenizer-type and --tokenizer-model", prefix, name)
		return nil
	}
	merges, _ := value(r, "merges", gguf.Value.Strings)
	if merges == nil {
		merges = []string{}
	}
	bytes := map[string]any{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}
	return map[string]any{
		"normalizer": nil, "pre_tokenizer": p.json(), "decoder": bytes, "post_processor": r.around(p.addBOS),
		"model": map[string]any{"type": "BPE", "dropout": nil, "unk_token": nil, "fuse_unk": false, "byte_fallback": false, "ignore_merges": p.ignoreMerges,
			"vocab": r.vocabulary(), "merges": merges},
	}
}

// around is the post_processor that puts bos and eos around a text; null: neither.
func (r *reading) around(bos bool) any {
	single, pair := []any{}, []any{}
	tokens := map[string]any{}
	put := func(on bool, key string) {
		id := r.id(key)
		if !on || id < 0 {
			return
		}
		name := r.tokens[id]
		tokens[name] = map[string]any{"id": name, "ids": []int{id}, "tokens": []string{name}}
		for i, list := range []*[]any{&single, &pair} {
			*list = append(*list, map[string]any{"SpecialToken": map[string]any{"id": name, "type_id": i}})
		}
	}
	sequence := func(name string, kind int) any {
		return map[string]any{"Sequence": map[string]any{"id": name, "type_id": kind}}
	}
	put(r.truth("add_bos_token", bos), "bos_token_id")
	single = append(single, sequence("A", 0))
	first := append([]any{}, single...)
	pair = append(pair, sequence("B", 1))
	put(r.truth("add_eos_token", false), "eos_token_id")
	if len(tokens) == 0 {
		return nil
	}
	return map[string]any{"type": "TemplateProcessing", "single": single, "pair": append(first, pair...), "special_tokens": tokens}
}
