package hf

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
	"unsafe"

	"monotron/internal/exitcode"
	"monotron/tokenizer/bpe"
	"monotron/tokenizer/uni"
)

// Tokenizer is safe for use by several goroutines.
type Tokenizer struct {
	vocab     map[string]int32 // of the model
	tokens    map[int32]string
	added     addedTokens
	normalize normalizer
	split     splitter
	first     bool // split asks where a text begins
	model     model
	fast      *bpe.Model // does split and model at once, where that is known to be possible
	decode    decoder
	before    []int32 // special tokens put around a text
	after     []int32
	size      int
}

// maxFile bounds a tokenizer.json, in bytes.
const maxFile = 1 << 29

// Changes are settings of tokenizer_config.json that go before those of tokenizer.json.
type Changes struct {
	PrefixSpace *bool // add_prefix_space of a ByteLevel pre-tokenizer; nil: as tokenizer.json says
}

// Load reads a tokenizer.json.
func Load(path string, changes Changes) (*Tokenizer, error) {
	data, err := exitcode.ReadFile(path, maxFile)
	if err != nil {
		if exitcode.CodeOf(err) == exitcode.NoInput {
			err = fmt.Errorf("%w; give the path of a file or a folder, because tokenizers are not downloaded by name", err)
		}
		return nil, fmt.Errorf("--tokenizer-model: %w", err)
	}
	return Parse(path, data, changes)
}

// reader holds what the parts of a file have to know of each other.
type reader struct {
	path   string
	depth  int
	first  bool // a splitter asks where a text begins
	behind bool // it does so behind another
	splits int  // splitters read
	joins  bool // a normalizer joins or spreads characters
	empty  bool // a normalizer replaces nothing by something
}

func (r *reader) bad(format string, args ...any) error {
	return exitcode.Errorf(exitcode.BadData, "%s: %w", r.path, fmt.Errorf(format, args...))
}

func (r *reader) unsupported(part, name string) error {
	return r.bad("the %s %q is not supported", part, name)
}

func (r *reader) deeper() error {
	if r.depth++; r.depth > 50 {
		return r.bad("sequences are nested too deeply")
	}
	return nil
}

func (r *reader) back() { r.depth-- }

func (r *reader) part(name string, raw json.RawMessage, into any) error {
	if err := json.Unmarshal(raw, into); err != nil {
		return r.bad("%s: %w", name, err)
	}
	return nil
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// file is a tokenizer.json. Truncation and padding are for batches: a text by
// itself is neither cut nor filled up by Megatron, so they are not read.
type file struct {
	Version     *string
	AddedTokens []struct {
		ID int32
		AddedToken
	} `json:"added_tokens"`
	Normalizer    json.RawMessage
	PreTokenizer  json.RawMessage `json:"pre_tokenizer"`
	PostProcessor json.RawMessage `json:"post_processor"`
	Decoder       json.RawMessage
	Model         json.RawMessage
}

// Parse reads the content of a tokenizer.json; path is for messages.
func Parse(path string, data []byte, changes Changes) (*Tokenizer, error) {
	r := &reader{path: path}
	var f file
	if err := exitcode.JSON(path, data, &f); err != nil {
		return nil, err
	}
	if f.Version != nil && *f.Version != "1.0" {
		return nil, r.unsupported("version", *f.Version)
	}
	if err := f.change(changes); err != nil {
		return nil, r.bad("pre_tokenizer: %w", err)
	}
	// A text goes through normalizer, pre-tokenizer, model, post-processor; back through the decoder.
	t := &Tokenizer{tokens: map[int32]string{}}
	t.added = addedTokens{list: map[int32]AddedToken{}, ids: map[string]int32{}, shown: map[int32]string{}}
	var err error
	if t.normalize, err = r.normalizer(f.Normalizer); err != nil {
		return nil, err
	}
	if t.split, err = r.preTokenizer(f.PreTokenizer); err != nil {
		return nil, err
	}
	if err := r.beginning(); err != nil {
		return nil, err
	}
	t.first = r.first
	if err := t.readModel(r, f); err != nil {
		return nil, err
	}
	if t.decode, err = r.decoder(f.Decoder); err != nil {
		return nil, err
	}
	if t.before, t.after, err = r.postProcessor(f.PostProcessor); err != nil {
		return nil, err
	}
	// Added tokens get ids by a rule, which must be those of the file.
	for _, a := range f.AddedTokens {
		id, err := t.add(a.AddedToken)
		if err == nil && id >= 0 && id != a.ID {
			err = fmt.Errorf("the added token %.60q has id %d in the file, but the rule that assigns ids gives %d", a.Content, a.ID, id)
		}
		if err != nil {
			return nil, r.bad("%w", err)
		}
	}
	t.finish()
	return t, nil
}

// change writes c into the parts of f.
func (f *file) change(c Changes) error {
	var part map[string]json.RawMessage
	if c.PrefixSpace == nil || json.Unmarshal(f.PreTokenizer, &part) != nil || string(part["type"]) != `"ByteLevel"` {
		return nil
	}
	part["add_prefix_space"] = strconv.AppendBool(nil, *c.PrefixSpace)
	changed, err := json.Marshal(part)
	f.PreTokenizer = changed
	return err
}

// beginning refuses what asks for alignments that are not kept here.
func (r *reader) beginning() error {
	switch {
	case r.first && r.empty:
		return r.bad("prepend_scheme \"first\" after a Replace whose pattern matches an empty text is not supported")
	case r.behind && r.joins:
		return r.bad("prepend_scheme \"first\" after another pre-tokenizer and a normalizer of type NFC, NFD, NFKC, NFKD or Precompiled is not supported")
	}
	return nil
}

func (t *Tokenizer) readModel(r *reader, f file) error {
	var m struct {
		Type  *string
		Vocab json.RawMessage
	}
	if isNull(f.Model) {
		return r.bad("the key model is missing or null")
	}
	if err := r.part("model", f.Model, &m); err != nil {
		return err
	}
	// A model, and its vocabulary both ways.
	switch {
	case m.Type == nil || *m.Type == "BPE":
		model, err := r.bpe(f.Model)
		if err != nil {
			return err
		}
		t.model, t.vocab = model, model.vocab
		t.fast = fastPath(f.PreTokenizer, model)
	case *m.Type == "Unigram":
		model, tokens, err := r.unigram(f.Model)
		if err != nil {
			return err
		}
		t.model, t.vocab = model, model.vocab
		for id, token := range tokens {
			t.tokens[int32(id)] = token
		}
	default:
		return r.unsupported("model", *m.Type)
	}
	for token, id := range t.vocab {
		t.tokens[id] = token
	}
	return nil
}

// fastPath is a model over bytes that does what pre-tokenizer and model do
// together: cut by one known pattern and spell the pieces in bytes. nil where
// the file says anything else.
func fastPath(raw json.RawMessage, m *bpeModel) *bpe.Model {
	type step struct {
		Type           string
		AddPrefixSpace *bool `json:"add_prefix_space"`
		UseRegex       *bool `json:"use_regex"`
		Pattern        pattern
		Behavior       string
		Invert         bool
		Pretokenizers  []json.RawMessage
	}
	// The steps, as far as they are known.
	read := func(raw json.RawMessage) (s step) {
		if json.Unmarshal(raw, &s) != nil {
			return step{}
		}
		return s
	}
	s := read(raw)
	for s.Type == "Sequence" && len(s.Pretokenizers) == 1 {
		s = read(s.Pretokenizers[0])
	}
	// One ByteLevel with its own pattern, or a Split by a known pattern before a ByteLevel without one.
	last, p := s, bpe.GPT2
	if s.Type == "Sequence" {
		if len(s.Pretokenizers) != 2 {
			return nil
		}
		cut := read(s.Pretokenizers[0])
		if last = read(s.Pretokenizers[1]); cut.Type != "Split" || cut.Pattern.Regex == nil || cut.Behavior != "Isolated" || cut.Invert {
			return nil
		}
		known, ok := bpe.Lookup(*cut.Pattern.Regex)
		if !ok || last.UseRegex == nil || *last.UseRegex {
			return nil
		}
		p = known
	} else if s.UseRegex != nil && !*s.UseRegex {
		return nil
	}
	// Nothing before a text, nothing around pieces.
	if last.Type != "ByteLevel" || last.AddPrefixSpace == nil || *last.AddPrefixSpace || m.prefix != "" || m.suffix != "" {
		return nil
	}
	// An id for each byte, and pieces that need no merges.
	var single [256]int32
	for b := range single {
		id, ok := m.vocab[string(bpe.Spelling[b])]
		if !ok {
			return nil
		}
		single[b] = id
	}
	var pieces map[string]int32
	if m.ignoreMerges {
		pieces = make(map[string]int32, len(m.vocab))
		for token, id := range m.vocab {
			if b := bpe.Unspell(token); b != nil {
				pieces[string(b)] = id
			}
		}
	}
	return bpe.NewModel(p, single, m.merges, pieces)
}

// finish is called once all tokens are there.
func (t *Tokenizer) finish() {
	t.added.build()
	t.size = len(t.vocab)
	highest := int32(-1)
	for id, a := range t.added.list {
		if _, ok := t.vocab[a.Content]; !ok {
			t.size++
		}
		highest = max(highest, id)
	}
	for id := range t.tokens {
		highest = max(highest, id)
	}
	t.size = max(t.size, int(highest)+1)
}

// AddSpecial enters tokens that are matched literally in a text. An existing one keeps its id.
func (t *Tokenizer) AddSpecial(list []AddedToken) error {
	for _, a := range list {
		if old, ok := t.added.ids[a.Content]; ok && t.added.list[old].Special {
			continue
		}
		if _, err := t.add(a); err != nil {
			return err
		}
	}
	t.finish()
	return nil
}

// SplitSpecial takes special tokens in a text for text: split_special_tokens of tokenizer_config.json.
func (t *Tokenizer) SplitSpecial() {
	t.added.split = true
	t.finish()
}

// Special reports whether id is an added token that is special.
func (t *Tokenizer) Special(id int32) bool { return t.added.list[id].Special }

// Added says whether token is an added one.
func (t *Tokenizer) Added(token string) bool {
	_, ok := t.added.ids[token]
	return ok
}

// Surround sets the ids put before and after a text.
func (t *Tokenizer) Surround(before, after []int32) { t.before, t.after = before, after }

// VocabSize counts ids, from 0 to the highest.
func (t *Tokenizer) VocabSize() int { return t.size }

// ID is the id of a token.
func (t *Tokenizer) ID(token string) (int32, bool) {
	if id, ok := t.added.ids[token]; ok {
		return id, true
	}
	id, ok := t.vocab[token]
	return id, ok
}

// Append adds the ids of text, which is UTF-8; special says whether the tokens
// that go around a text are added. On an error dst is returned as it was.
func (t *Tokenizer) Append(dst []int32, text string, special bool) ([]int32, error) {
	out := dst
	if special {
		out = append(out, t.before...)
	}
	begin := 0 // of the text, in bytes
	if t.first {
		_, begin = utf8.DecodeRuneInString(text)
	}
	// Added tokens are cut out of the text as it is, then others out of the normalized text; what is left goes to
	// the model.
	err := t.added.cut(text, t.added.raw, func(p part) (err error) {
		s := aligned{p.text, begin}
		begin = 0
		if p.id >= 0 {
			out = append(out, p.id)
			return nil
		}
		if t.normalize != nil && p.text != "" {
			if s, err = t.normalize(s); err != nil {
				return err
			}
		}
		at := 0
		return t.added.cut(s.text, t.added.norm, func(p part) (err error) {
			from := at
			if at += len(p.text); p.id >= 0 {
				out = append(out, p.id)
			} else {
				out, err = t.plain(out, s.cut(from, at))
			}
			return err
		})
	})
	if err != nil {
		return dst, exitcode.Errorf(exitcode.BadData, "%w", err)
	}
	if special {
		out = append(out, t.after...)
	}
	return out, nil
}

// plain encodes normalized text without added tokens.
func (t *Tokenizer) plain(dst []int32, p piece) ([]int32, error) {
	if p.text == "" {
		return dst, nil
	}
	if t.fast != nil {
		return t.fast.Append(dst, unsafe.Slice(unsafe.StringData(p.text), len(p.text))), nil
	}
	pieces := []piece{p}
	var err error
	if t.split != nil {
		if pieces, err = t.split(pieces); err != nil {
			return dst, err
		}
	}
	for _, p := range pieces {
		if p.text == "" {
			continue
		}
		if dst, err = t.model.append(dst, p.text); err != nil {
			return dst, err
		}
	}
	return dst, nil
}

// token is what an id is called on the way back; ok is false where it is unknown.
func (t *Tokenizer) token(id int32) (s string, ok bool) {
	if a, found := t.added.list[id]; found {
		if shown, changed := t.added.shown[id]; changed {
			return shown, true
		}
		return a.Content, true
	}
	s, ok = t.tokens[id]
	return s, ok
}

// Decode is the text of ids; unknown ids are left out.
func (t *Tokenizer) Decode(ids []int32) string {
	var tokens []string
	for _, id := range ids {
		if s, ok := t.token(id); ok {
			tokens = append(tokens, s)
		}
	}
	if t.decode.joined == nil {
		return strings.Join(tokens, " ")
	}
	if len(tokens) == 0 {
		return ""
	}
	out, err := t.decode.joined(tokens)
	if err != nil { // only a pattern that ran out of time can fail
		return uni.Lossy([]byte(strings.Join(tokens, "")))
	}
	return strings.Join(out, "")
}

// AppendBytes adds the bytes of one token, as if others stood before it.
func (t *Tokenizer) AppendBytes(dst []byte, id int32) []byte {
	s, ok := t.token(id)
	if !ok {
		return dst
	}
	return append(dst, t.decode.alone([]byte(s))...)
}
