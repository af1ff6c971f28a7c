package tokenizer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"monotron/internal/exitcode"
	"monotron/internal/gguf"
	"monotron/tokenizer/ggvocab"
	"monotron/tokenizer/hf"
)

// huggingFace is Megatron's HuggingFaceTokenizer: a folder with tokenizer.json,
// whose special tokens tokenizer_config.json names.
type huggingFace struct {
	*hf.Tokenizer
	config Config
	eod    int
	pad    int
	bos    int // -1: it has none
}

// loadHuggingFace reads a folder, or a tokenizer.json with the files next to it.
func loadHuggingFace(c Config) (Tokenizer, error) {
	if c.Model == "" {
		return nil, exitcode.Errorf(exitcode.Usage, "HuggingFaceTokenizer needs --tokenizer-model, a folder with tokenizer.json, or with vocab.json and merges.txt")
	}
	if gguf.Is(c.Model) {
		return loadGGUF(c)
	}
	path, dir := c.Model, filepath.Dir(c.Model)
	if info, err := os.Stat(c.Model); err == nil && info.IsDir() {
		dir, path = c.Model, filepath.Join(c.Model, "tokenizer.json")
		if !exists(path) {
			return loadWithoutJSON(c)
		}
	}
	inner, err := hf.Load(path)
	if err != nil {
		return nil, err
	}
	names, err := readNames(dir)
	if err != nil {
		return nil, err
	}
	return newHuggingFace(c, inner, names)
}

// loadGGUF reads the tokenizer that a GGUF file holds.
func loadGGUF(c Config) (Tokenizer, error) {
	files, err := ggvocab.Path(c.Model)
	if err != nil {
		return nil, err
	}
	names := &names{path: c.Model}
	var inner *hf.Tokenizer
	for _, f := range files {
		switch f.Name {
		case "tokenizer.json":
			if inner, err = hf.Parse(c.Model, f.Data); err != nil {
				return nil, err
			}
		case "tokenizer_config.json":
			if err := names.read(f.Data); err != nil {
				return nil, exitcode.Errorf(exitcode.BadData, "%s: %w", c.Model, err)
			}
		}
	}
	return newHuggingFace(c, inner, names)
}

// newHuggingFace makes the tokenizer of a tokenizer.json and the names of special tokens.
func newHuggingFace(c Config, inner *hf.Tokenizer, names *names) (Tokenizer, error) {
	names.Additional = append(names.Additional, plainTokens(c.SpecialTokens)...)
	if err := names.apply(inner); err != nil {
		return nil, err
	}
	t := &huggingFace{Tokenizer: inner, config: c, eod: -1, pad: -1, bos: -1}
	var err error
	end := names.EOS
	if end == "" {
		end = names.Sep
	}
	if t.eod, err = names.id(inner, end); err != nil {
		return nil, err
	}
	if t.pad, err = names.id(inner, names.Pad); err != nil {
		return nil, err
	}
	if id, ok := inner.ID(names.BOS); ok && names.BOS != "" {
		t.bos = int(id)
	}
	return t, nil
}

// loadWithoutJSON reads a folder that holds GPT-2's two files under Hugging
// Face's names.
func loadWithoutJSON(c Config) (Tokenizer, error) {
	vocab, merges := filepath.Join(c.Model, "vocab.json"), filepath.Join(c.Model, "merges.txt")
	if model := filepath.Join(c.Model, "tokenizer.model"); !exists(vocab) && exists(model) {
		return nil, exitcode.Errorf(exitcode.Usage, "%s has no tokenizer.json; for its SentencePiece model use --tokenizer-type Llama2Tokenizer --tokenizer-model %s", c.Model, model)
	}
	if len(c.SpecialTokens) > 0 {
		return nil, exitcode.Errorf(exitcode.Usage, "--tokenizer-special-tokens needs a tokenizer.json, and %s has none; leave it out", c.Model)
	}
	t, err := LoadGPT2(vocab, merges)
	if err != nil {
		return nil, err
	}
	return hfGPT2{t, c}, nil
}

// names is what tokenizer_config.json says: which tokens are special, and for
// what.
type names struct {
	path       string
	BOS        string
	EOS        string
	Sep        string
	Pad        string
	Additional []hf.AddedToken
	AddBOS     *bool
	AddEOS     *bool
	class      string
}

// readNames reads tokenizer_config.json, and special_tokens_map.json for what
// the first leaves out. Neither has to be there.
func readNames(dir string) (*names, error) {
	n := &names{}
	for _, file := range []string{"special_tokens_map.json", "tokenizer_config.json"} {
		path := filepath.Join(dir, file)
		if !exists(path) {
			continue
		}
		data, err := readFile(path, "--tokenizer-model")
		if err != nil {
			return nil, err
		}
		n.path = path
		if err := n.read(data); err != nil {
			return nil, exitcode.Errorf(exitcode.BadData, "%s: %w", path, err)
		}
	}
	return n, nil
}

func (n *names) read(data []byte) error {
	var f struct {
		BOS        *specialName             `json:"bos_token"`
		EOS        *specialName             `json:"eos_token"`
		Sep        *specialName             `json:"sep_token"`
		Pad        *specialName             `json:"pad_token"`
		Unk        *specialName             `json:"unk_token"`
		Mask       *specialName             `json:"mask_token"`
		Cls        *specialName             `json:"cls_token"`
		Additional []specialName            `json:"additional_special_tokens"`
		Decoder    map[string]hf.AddedToken `json:"added_tokens_decoder"`
		AddBOS     *bool                    `json:"add_bos_token"`
		AddEOS     *bool                    `json:"add_eos_token"`
		Class      string                   `json:"tokenizer_class"`
	}
	if err := json.Unmarshal(data, &f); err != nil {
		return err
	}
	// Special tokens by their roles.
	for _, pair := range []struct {
		from *specialName
		to   *string
	}{{f.BOS, &n.BOS}, {f.EOS, &n.EOS}, {f.Sep, &n.Sep}, {f.Pad, &n.Pad}} {
		if pair.from != nil {
			*pair.to = pair.from.Content
		}
	}
	// Added tokens in the order of their ids, then those with a role, then others.
	ids := make([]int, 0, len(f.Decoder))
	for id := range f.Decoder {
		number, err := strconv.Atoi(id)
		if err != nil {
			return exitcode.Errorf(exitcode.BadData, "added_tokens_decoder: %q is not a token id", id)
		}
		ids = append(ids, number)
	}
	slices.Sort(ids)
	for _, id := range ids {
		n.Additional = append(n.Additional, f.Decoder[strconv.Itoa(id)])
	}
	for _, s := range []*specialName{f.BOS, f.EOS, f.Unk, f.Sep, f.Pad, f.Cls, f.Mask} {
		if s != nil {
			n.Additional = append(n.Additional, s.AddedToken)
		}
	}
	for _, s := range f.Additional {
		n.Additional = append(n.Additional, s.AddedToken)
	}
	n.AddBOS, n.AddEOS, n.class = f.AddBOS, f.AddEOS, f.Class
	return nil
}

// specialName is a token by its content alone or with the rules of an added token.
type specialName struct{ hf.AddedToken }

func (s *specialName) UnmarshalJSON(data []byte) error {
	s.Special = true
	if json.Unmarshal(data, &s.Content) == nil {
		return nil
	}
	err := json.Unmarshal(data, &s.AddedToken)
	s.Special = true
	return err
}

func plainTokens(list []string) (out []hf.AddedToken) {
	for _, s := range list {
		out = append(out, hf.AddedToken{Content: s, Special: true})
	}
	return out
}

// templated are the classes whose add_bos_token and add_eos_token replace the
// post-processor of tokenizer.json.
var templated = []string{"LlamaTokenizer", "LlamaTokenizerFast", "CodeLlamaTokenizer", "CodeLlamaTokenizerFast", "GemmaTokenizer", "GemmaTokenizerFast", "CohereTokenizer", "CohereTokenizerFast"}

// apply enters the special tokens and the template.
func (n *names) apply(t *hf.Tokenizer) error {
	if err := t.AddSpecial(n.Additional); err != nil {
		return exitcode.Errorf(exitcode.BadData, "%s: %w", n.path, err)
	}
	if n.AddBOS == nil && n.AddEOS == nil || !slices.Contains(templated, n.class) {
		return nil
	}
	var around [2][]int32
	for i, side := range []struct {
		on   bool
		name string
	}{{n.AddBOS == nil || *n.AddBOS, n.BOS}, {n.AddEOS != nil && *n.AddEOS, n.EOS}} {
		if !side.on {
			continue
		}
		id, err := n.id(t, side.name)
		if err != nil {
			return err
		}
		if id < 0 {
			return exitcode.Errorf(exitcode.BadData, "%s asks for a token around each text that it does not name", n.path)
		}
		around[i] = []int32{int32(id)}
	}
	t.Surround(around[0], around[1])
	return nil
}

// id is the id of a named token, -1 where the name is empty.
func (n *names) id(t *hf.Tokenizer, token string) (int, error) {
	if token == "" {
		return -1, nil
	}
	id, ok := t.ID(token)
	if !ok {
		return -1, exitcode.Errorf(exitcode.BadData, "%s: the token %.60q is not in the vocabulary", n.path, token)
	}
	return int(id), nil
}

func (t *huggingFace) Name() string           { return "HuggingFaceTokenizer" }
func (t *huggingFace) EOD() int               { return t.eod }
func (t *huggingFace) Pad() (id int, ok bool) { return t.pad, t.pad >= 0 }

func (t *huggingFace) Encode(text string) ([]int32, error) {
	return t.Append(make([]int32, 0, len(text)/3+2), text)
}

func (t *huggingFace) Append(dst []int32, text string) ([]int32, error) {
	return t.append(dst, text, !t.config.NoSpecial)
}

// AppendPlain is what the function of this name asks for.
func (t *huggingFace) AppendPlain(dst []int32, text string) ([]int32, error) {
	return t.append(dst, text, false)
}

func (t *huggingFace) append(dst []int32, text string, special bool) ([]int32, error) {
	if at := invalidAt(text); at >= 0 {
		return dst, notUTF8(at)
	}
	return t.Tokenizer.Append(dst, text, special)
}

func (t *huggingFace) Description() Description { return describeHF(t.config) }

// describeHF lists the options Megatron passes for a HuggingFaceTokenizer.
func describeHF(c Config) Description {
	return Description{Path: c.Model, Options: []Option{
		{"chat_template", "None"},
		{"vocab_file", pythonNone(c.VocabFile)},
		{"merges_file", pythonNone(c.MergeFile)},
		{"additional_special_tokens", pythonList(c.SpecialTokens)},
		{"use_fast", "True"},
		{"trust_remote_code", "False"},
		{"include_special_tokens", pythonBool(!c.NoSpecial)},
		{"use_gigatoken", "False"},
	}}
}

// hfGPT2 is such a folder without tokenizer.json; GPT-2 puts nothing around a text.
type hfGPT2 struct {
	*GPT2
	config Config
}

func (t hfGPT2) Name() string             { return "HuggingFaceTokenizer" }
func (t hfGPT2) Description() Description { return describeHF(t.config) }

func pythonNone(s string) string {
	if s == "" {
		return "None"
	}
	return s
}

func pythonBool(b bool) string {
	if b {
		return "True"
	}
	return "False"
}

// pythonList is the repr of a list of strings of printable characters.
func pythonList(list []string) string {
	quoted := make([]string, len(list))
	for i, s := range list {
		q := "'"
		if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
			q = `"`
		}
		s = strings.ReplaceAll(s, `\`, `\\`)
		if q == "'" {
			s = strings.ReplaceAll(s, "'", `\'`)
		}
		quoted[i] = q + s + q
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
