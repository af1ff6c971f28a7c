package ggvocab

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"monotron/internal/exitcode"
	"monotron/internal/gguf"
)

// Options say what Metadata makes.
type Options struct {
	Files  []File         // of a Hugging Face folder, under its names
	Size   int            // ids of the model's vocabulary
	Config map[string]any // config.json, for special ids that the tokenizer's files leave out; may be nil
	Pre    string         // of several names of the way texts are cut, the model's; "": the commonest
	Model  string         // tokenizer.ggml.model of a BPE over characters, where it is another than llama: Gemma4
	Spaces *bool          // add_space_prefix of a SentencePiece tokenizer, where the model's class sets it
}

// writing is a tokenizer on its way to metadata.
type writing struct {
	Options
	files  map[string][]byte
	json   *tokenizerJSON
	config map[string]any // tokenizer_config.json

	tokens []string
	kinds  []int32
	scores []float32 // SentencePiece
	addBOS bool      // llama.cpp puts bos before texts unless this is false
	out    []gguf.Pair
	Notes  []string
}

// tokenizerJSON is the part of a tokenizer.json that becomes metadata.
type tokenizerJSON struct {
	Added []struct {
		ID      int    `json:"id"`
		Content string `json:"content"`
		Special bool   `json:"special"`
	} `json:"added_tokens"`
	PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Normalizer    json.RawMessage `json:"normalizer"`
	Model         struct {
		Type         string          `json:"type"`
		ByteFallback bool            `json:"byte_fallback"`
		UnkToken     string          `json:"unk_token"`
		Vocab        json.RawMessage `json:"vocab"`
		Merges       json.RawMessage `json:"merges"`
	} `json:"model"`
}

// Metadata makes the metadata of a tokenizer out of its files. Files that GGUF has no
// entry for are an error: llama.cpp would give other ids. Notes are for a person.
func Metadata(o Options) (pairs []gguf.Pair, notes []string, err error) {
	w := &writing{Options: o, files: map[string][]byte{}}
	for _, f := range o.Files {
		w.files[f.Name] = f.Data
	}
	if err := w.parse(); err != nil {
		return nil, nil, err
	}
	// The vocabulary, in the order in which llama.cpp's converter searches for it.
	switch {
	case w.Model == Gemma4 && w.json != nil && w.json.Model.Type == "BPE" && w.json.Model.ByteFallback:
		err = w.gemma4()
	case w.Model == Gemma4:
		err = errors.New("this family needs a tokenizer.json with a BPE model and byte_fallback, but the folder has none")
	case w.files["tokenizer.model"] != nil:
		err = w.pieces(w.files["tokenizer.model"])
	case w.json != nil && w.json.Model.Type == "BPE" && w.json.Model.ByteFallback:
		err = w.ranked()
	case w.json != nil && (w.json.Model.Type == "BPE" || w.json.Model.Type == ""):
		err = w.byteLevel()
	case w.json != nil:
		err = fmt.Errorf("tokenizer.json: a %s model cannot be stored in GGUF; it must be a BPE model", w.json.Model.Type)
	case w.files["vocab.json"] != nil && w.files["merges.txt"] != nil:
		err = w.twoFiles()
	default:
		err = fmt.Errorf("the folder has neither tokenizer.json, nor tokenizer.model, nor vocab.json with merges.txt")
	}
	if err == nil {
		err = w.special()
	}
	if err != nil {
		return nil, nil, exitcode.With(exitcode.BadData, err)
	}
	return w.out, w.Notes, nil
}

// parse reads the JSON files.
func (w *writing) parse() error {
	for name, into := range map[string]any{"tokenizer.json": &w.json, "tokenizer_config.json": &w.config} {
		if data := w.files[name]; data != nil {
			if err := json.Unmarshal(data, into); err != nil {
				return exitcode.Errorf(exitcode.BadData, "%s: %w", name, err)
			}
		}
	}
	return nil
}

func (w *writing) add(key string, value any) {
	w.out = append(w.out, gguf.Pair{Key: key, Value: value})
}

// reserve makes a list of Size tokens that nothing uses.
func (w *writing) reserve() {
	w.tokens, w.kinds = make([]string, w.Size), make([]int32, w.Size)
	for i := range w.tokens {
		w.tokens[i], w.kinds[i] = fmt.Sprintf("[PAD%d]", i), unused
	}
}

// set enters a token at its id.
func (w *writing) set(id int, token string, kind int32) error {
	if id < 0 || id >= w.Size {
		return fmt.Errorf("the token %.60q has id %d, but the model's ids are 0 to %d", token, id, w.Size-1)
	}
	w.tokens[id], w.kinds[id] = token, kind
	return nil
}

// words enters a vocabulary, then the added tokens.
func (w *writing) words(raw json.RawMessage) error {
	var vocab map[string]int
	if err := json.Unmarshal(raw, &vocab); err != nil {
		return fmt.Errorf("the vocabulary: %w", err)
	}
	w.reserve()
	for token, id := range vocab {
		if err := w.set(id, token, normal); err != nil {
			return err
		}
	}
	if w.json == nil {
		return nil
	}
	named := w.named()
	for _, a := range w.json.Added {
		kind, token := int32(control), a.Content
		if !a.Special && !named[token] && !isSpecial(token) {
			kind, token = userDefined, strings.ReplaceAll(token, blank, " ")
		}
		if err := w.set(a.ID, token, kind); err != nil {
			return err
		}
	}
	return nil
}

// named are the tokens to which tokenizer_config.json gives a meaning.
func (w *writing) named() map[string]bool {
	list := map[string]bool{}
	for _, s := range specials {
		if token := w.token(s.name); token != "" {
			list[token] = true
		}
	}
	more, _ := w.config["additional_special_tokens"].([]any)
	for _, m := range more {
		list[content(m)] = true
	}
	return list
}

// token is what tokenizer_config.json names as bos_token and the like; "": nothing.
func (w *writing) token(name string) string { return content(w.config[name+"_token"]) }

// content is a token that JSON has as its text, or as an object with it.
func content(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case map[string]any:
		text, _ := v["content"].(string)
		return text
	}
	return ""
}

// Tokens with the form of special ones are control tokens even where their file does not say so, as in
// llama.cpp's converter.
var specialForm = regexp.MustCompile(`^(<pad>|<mask>|<2mass>|\[@BOS@\]|<\|.*\|>|<｜.*｜>|<unused.*>)$`)

func isSpecial(token string) bool { return specialForm.MatchString(token) }

// byteLevel writes a byte-level BPE.
func (w *writing) byteLevel() error {
	p := preOf(w.json.PreTokenizer)
	if p == nil {
		return fmt.Errorf("tokenizer.json: llama.cpp has no name for the rule by which the pre_tokenizer splits texts (%s)", strings.Join(stepsOf(w.json.PreTokenizer, nil), ", "))
	}
	if err := w.words(w.json.Model.Vocab); err != nil {
		return fmt.Errorf("tokenizer.json: %w", err)
	}
	merges, err := mergeLines(w.json.Model.Merges)
	if err != nil {
		return fmt.Errorf("tokenizer.json: %w", err)
	}
	if n := w.json.Normalizer; len(n) > 0 && string(n) != "null" {
		w.Notes = append(w.Notes, "llama.cpp does not apply the normalizer of the tokenizer, so texts that the normalizer would change get different ids in llama.cpp")
	}
	w.addBOS = p.addBOS
	name := p.names[0]
	if other := preNamed(w.Pre); other != nil && slices.Equal(other.steps, p.steps) {
		name = w.Pre
	}
	w.vocabulary("gpt2", name, merges)
	return nil
}

// vocabulary adds what every kind of tokenizer has.
func (w *writing) vocabulary(model, pre string, merges []string) {
	w.add(prefix+"model", model)
	w.add(prefix+"pre", pre)
	w.add(prefix+"tokens", w.tokens)
	if w.scores != nil {
		w.add(prefix+"scores", w.scores)
	}
	w.add(prefix+"token_type", w.kinds)
	if len(merges) > 0 {
		w.add(prefix+"merges", merges)
	}
}

// pairsOf reads merges, which are pairs or lines.
func pairsOf(raw json.RawMessage) ([][2]string, error) {
	var pairs [][]string
	var lines []string
	if json.Unmarshal(raw, &lines) != nil {
		lines = nil // the first try may have left entries
		if err := json.Unmarshal(raw, &pairs); err != nil {
			return nil, fmt.Errorf("merges: %w", err)
		}
	}
	for _, line := range lines {
		pairs = append(pairs, strings.SplitN(line, " ", 2))
	}
	list := make([][2]string, len(pairs))
	for i, p := range pairs {
		if len(p) != 2 {
			return nil, fmt.Errorf("merge %d has %d parts; it must have two", i, len(p))
		}
		list[i] = [2]string{p[0], p[1]}
	}
	return list, nil
}

// mergeLines are merges as GGUF has them; a space within a part is spelled as bytes are.
func mergeLines(raw json.RawMessage) ([]string, error) {
	pairs, err := pairsOf(raw)
	if err != nil {
		return nil, err
	}
	lines := make([]string, len(pairs))
	for i, p := range pairs {
		lines[i] = strings.ReplaceAll(p[0], " ", "Ġ") + " " + strings.ReplaceAll(p[1], " ", "Ġ")
	}
	return lines, nil
}

// twoFiles writes GPT-2's two files.
func (w *writing) twoFiles() error {
	const end = "<|endoftext|>"
	if err := w.words(w.files["vocab.json"]); err != nil {
		return fmt.Errorf("vocab.json: %w", err)
	}
	// Merges: a line each, two tokens.
	var merges []string
	for i, line := range strings.Split(string(w.files["merges.txt"]), "\n") {
		line = strings.TrimRight(line, "\r")
		if line == "" || i == 0 && strings.HasPrefix(line, "#") {
			continue
		}
		if strings.Count(line, " ") != 1 {
			return fmt.Errorf("merges.txt: line %d, %.60q, is not two tokens", i+1, line)
		}
		merges = append(merges, line)
	}
	// GPT-2's one special token.
	w.config = orEmpty(w.config)
	if id := slices.Index(w.tokens, end); id >= 0 {
		w.kinds[id] = control
		for _, name := range []string{"bos", "eos", "unk"} {
			if w.token(name) == "" {
				w.config[name+"_token"] = end
			}
		}
	}
	w.vocabulary("gpt2", "gpt-2", merges)
	return nil
}

func orEmpty(m map[string]any) map[string]any {
	if m == nil {
		return map[string]any{}
	}
	return m
}

// byteName is the token that stands for one byte.
func byteName(b int) string {
	return "<0x" + strings.ToUpper(strconv.FormatInt(int64(b)+256, 16)[1:]) + ">"
}
