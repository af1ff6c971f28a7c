package tokenizer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"monotron/internal/exitcode"
	"monotron/tokenizer/hf"
)

// names is what the files next to a tokenizer.json say: which tokens are special
// and for what, and settings that go before those of tokenizer.json.
type names struct {
	path       string
	BOS        string
	EOS        string
	Sep        string
	Pad        string
	Additional []hf.AddedToken // in the order in which new ones get ids
	legacy     []hf.AddedToken // of added_tokens.json, which tokenizer.json goes before
	AddBOS     *bool
	AddEOS     *bool
	class      string
	prefix     *bool // add_prefix_space
	split      bool  // split_special_tokens
	slow       bool  // there is no tokenizer.json
}

// readNames reads the names of a folder.
func readNames(dir string) (*names, error) {
	return namesOf(func(name string) (data []byte, path string, err error) {
		if path = filepath.Join(dir, name); exists(path) {
			data, err = readFile(path, "--tokenizer-model")
		}
		return data, path, err
	})
}

// namesOf reads tokenizer_config.json, and special_tokens_map.json and
// added_tokens.json for what it leaves out. None of them has to be there: nil.
func namesOf(read func(name string) (data []byte, path string, err error)) (*names, error) {
	n := &names{}
	listed := false
	for _, file := range []string{"tokenizer_config.json", "special_tokens_map.json"} {
		data, path, err := read(file)
		if err != nil {
			return nil, err
		}
		if data == nil {
			continue
		}
		if n.path == "" {
			n.path = path
		}
		decoder, err := n.read(data)
		if err != nil {
			return nil, exitcode.Errorf(exitcode.BadData, "%s: %w", path, err)
		}
		listed = listed || decoder
	}
	if listed {
		return n, nil
	}
	data, path, err := read("added_tokens.json")
	if err == nil && data != nil {
		err = n.readAdded(path, data)
	}
	return n, err
}

// readAdded reads an added_tokens.json: {"token": id}.
func (n *names) readAdded(path string, data []byte) error {
	ids := map[string]int{}
	if err := exitcode.JSON(path, data, &ids); err != nil {
		return err
	}
	n.path = path
	for _, token := range slices.SortedFunc(maps.Keys(ids), func(a, b string) int { return ids[a] - ids[b] }) {
		special := slices.ContainsFunc(n.Additional, func(a hf.AddedToken) bool { return a.Content == token && a.Special })
		n.legacy = append(n.legacy, hf.AddedToken{Content: token, Special: special, Normalized: !special})
	}
	return nil
}

// read takes what n lacks from the content of one of the first two files. listed says that it has added_tokens_decoder.
func (n *names) read(data []byte) (listed bool, err error) {
	var f struct {
		BOS        *specialName             `json:"bos_token"`
		EOS        *specialName             `json:"eos_token"`
		Sep        *specialName             `json:"sep_token"`
		Pad        *specialName             `json:"pad_token"`
		Unk        *specialName             `json:"unk_token"`
		Mask       *specialName             `json:"mask_token"`
		Cls        *specialName             `json:"cls_token"`
		Additional []specialName            `json:"additional_special_tokens"`
		Extra      specialNames             `json:"extra_special_tokens"`
		Decoder    map[string]hf.AddedToken `json:"added_tokens_decoder"`
		AddBOS     *bool                    `json:"add_bos_token"`
		AddEOS     *bool                    `json:"add_eos_token"`
		Class      string                   `json:"tokenizer_class"`
		Prefix     *bool                    `json:"add_prefix_space"`
		Split      bool                     `json:"split_special_tokens"`
	}
	if err := json.Unmarshal(data, &f); err != nil {
		return false, err
	}
	// Special tokens by their roles.
	for _, pair := range []struct {
		from *specialName
		to   *string
	}{{f.BOS, &n.BOS}, {f.EOS, &n.EOS}, {f.Sep, &n.Sep}, {f.Pad, &n.Pad}} {
		if pair.from != nil && *pair.to == "" {
			*pair.to = pair.from.Content
		}
	}
	// Added tokens in the order of their ids, then those with a role, then others.
	ids := make([]int, 0, len(f.Decoder))
	for id := range f.Decoder {
		number, err := strconv.Atoi(id)
		if err != nil {
			return false, exitcode.Errorf(exitcode.BadData, "added_tokens_decoder: %q is not a token id", id)
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
	for _, s := range slices.Concat(ownRoles(data), f.Extra, f.Additional) {
		n.Additional = append(n.Additional, s.AddedToken)
	}
	// Settings.
	n.AddBOS, n.AddEOS, n.prefix = cmp.Or(n.AddBOS, f.AddBOS), cmp.Or(n.AddEOS, f.AddEOS), cmp.Or(n.prefix, f.Prefix)
	n.class, n.split = cmp.Or(n.class, f.Class), n.split || f.Split
	return f.Decoder != nil, nil
}

// roles are the roles of special tokens that every tokenizer has.
var roles = []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}

// ownRoles are the special tokens with roles that only some models have, such as
// image_token, in the order of the file.
func ownRoles(data []byte) (list []specialName) {
	for _, m := range members(data) {
		var s specialName
		if strings.HasSuffix(m.key, "_token") && !slices.Contains(roles, m.key) && json.Unmarshal(m.value, &s) == nil && s.Content != "" {
			list = append(list, s)
		}
	}
	return list
}

// member is one of a JSON object.
type member struct {
	key   string
	value json.RawMessage
}

// members are those of a JSON object, in its order; of anything else there are none.
func members(data []byte) (list []member) {
	d := json.NewDecoder(bytes.NewReader(data))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return nil
	}
	for d.More() {
		key, err := d.Token()
		var value json.RawMessage
		if err != nil || d.Decode(&value) != nil {
			return list
		}
		list = append(list, member{key.(string), value})
	}
	return list
}

// specialNames are special tokens in a list, or by names of their roles.
type specialNames []specialName

func (s *specialNames) UnmarshalJSON(data []byte) error {
	*s = nil
	for _, m := range members(data) {
		var one specialName
		if err := json.Unmarshal(m.value, &one); err != nil {
			return err
		}
		*s = append(*s, one)
	}
	if len(*s) > 0 || bytes.HasPrefix(data, []byte("{")) {
		return nil
	}
	return json.Unmarshal(data, (*[]specialName)(s))
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

// templated are the classes whose add_bos_token and add_eos_token replace the
// post-processor of tokenizer.json.
var templated = []string{"LlamaTokenizer", "CodeLlamaTokenizer", "GemmaTokenizer", "CohereTokenizer"}

// spaced are the classes whose add_prefix_space, false by default, replaces that
// of tokenizer.json.
var spaced = []string{"GPT2Tokenizer", "CodeGenTokenizer", "GPTNeoXTokenizer"}

// prefixSpace is add_prefix_space where it counts, else nil.
func (n *names) prefixSpace() *bool {
	if !slices.Contains(spaced, strings.TrimSuffix(n.class, "Fast")) {
		return nil
	}
	on := n.prefix != nil && *n.prefix
	return &on
}

// apply enters the special tokens and the template.
func (n *names) apply(t *hf.Tokenizer) error {
	for _, a := range n.legacy {
		if !t.Added(a.Content) {
			if err := t.AddSpecial([]hf.AddedToken{a}); err != nil {
				return exitcode.Errorf(exitcode.BadData, "%s: %w", n.path, err)
			}
		}
	}
	if err := t.AddSpecial(n.Additional); err != nil {
		return exitcode.Errorf(exitcode.BadData, "%s: %w", n.path, err)
	}
	if n.split {
		t.SplitSpecial()
	}
	return n.surround(t)
}

// surround sets the tokens around a text, where tokenizer_config.json says them.
func (n *names) surround(t *hf.Tokenizer) error {
	if n.AddBOS == nil && n.AddEOS == nil || !n.slow && !slices.Contains(templated, strings.TrimSuffix(n.class, "Fast")) {
		return nil
	}
	var around [2][]int32
	for i, side := range []struct {
		on          bool
		field, name string
	}{{n.AddBOS == nil && !n.slow || n.AddBOS != nil && *n.AddBOS, "bos_token", n.BOS}, {n.AddEOS != nil && *n.AddEOS, "eos_token", n.EOS}} {
		if !side.on {
			continue
		}
		id, err := n.id(t, side.name)
		if err != nil {
			return err
		}
		if id < 0 {
			return exitcode.Errorf(exitcode.BadData, "%s adds a %s to each text, but does not name it; add %q to this file", n.path, side.field, side.field)
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
