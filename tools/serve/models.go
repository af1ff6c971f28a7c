package serve

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
)

// object is how clients see a model by its name.
func (s *server) object(l *loaded, name string) map[string]any {
	m := map[string]any{"id": name, "object": "model", "created": s.created, "owned_by": "monotron"}
	if name != s.name {
		m["parent"] = s.name
	}
	if l.Context > 0 {
		m["max_model_len"] = l.Context
	}
	return m
}

func (s *server) models(w http.ResponseWriter, _ *http.Request, l *loaded) error {
	list := []any{s.object(l, s.name)}
	for _, a := range s.load.Adapters {
		list = append(list, s.object(l, a.Name))
	}
	return reply(w, map[string]any{"object": "list", "data": list})
}

func (s *server) model(w http.ResponseWriter, r *http.Request, l *loaded) error {
	name := r.PathValue("model")
	if _, err := s.named(name); err != nil {
		return err
	}
	return reply(w, s.object(l, name))
}

// named is the number of the adapter that a request names as its model, 0 for the model without one, which
// no name means too. Other names are refused.
func (s *server) named(name string) (adapter int, err error) {
	if name == "" || name == s.name {
		return 0, nil
	}
	known := fmt.Sprintf("%q", s.name)
	for i, a := range s.load.Adapters {
		if name == a.Name {
			return i + 1, nil
		}
		known += fmt.Sprintf(", %q", a.Name)
	}
	return 0, &problem{Status: http.StatusNotFound, Message: fmt.Sprintf("unknown model %.100q; this server has %s", name, known), Param: "model", Code: "model_not_found"}
}

// modelName is what an answer says of the model that the request named.
func (s *server) modelName(asked string) string {
	if asked == "" {
		return s.name
	}
	return asked
}

// encodeText is the ids of a text; plain: without the tokens that the tokenizer puts around.
func (l *loaded) encodeText(param, text string, plain bool) ([]int32, error) {
	if l.Tok == nil {
		return nil, wrong(param, "this model has no tokenizer: send token ids")
	}
	ids, err := l.Encode(text, plain)
	return ids, textProblem(param, err)
}

func textProblem(param string, err error) error {
	if err == nil {
		return nil
	}
	return wrong(param, "%s", err)
}

func (s *server) tokenize(w http.ResponseWriter, r *http.Request, l *loaded) error {
	var q struct {
		Model    string          `json:"model"`
		Prompt   *string         `json:"prompt"`
		Content  *string         `json:"content"` // llama.cpp's name
		Messages json.RawMessage `json:"messages"`
		Special  *bool           `json:"add_special_tokens"`
		templateAsk
	}
	if err := decode(r, &q); err != nil {
		return err
	}
	if _, err := s.named(q.Model); err != nil {
		return err
	}
	if q.Prompt == nil {
		q.Prompt = q.Content
	}
	// Messages by the chat template, or a text.
	var ids []int32
	var err error
	switch {
	case given(q.Messages):
		var messages []message
		if messages, err = l.turns(q.Messages); err == nil {
			_, ids, err = l.render(messages, &q.templateAsk, q.Special)
		}
	case q.Prompt == nil:
		err = wrong("prompt", "the field is missing; it must be the string to tokenize")
	default:
		ids, err = l.encodeText("prompt", *q.Prompt, q.Special != nil && !*q.Special)
	}
	if err != nil {
		return err
	}
	return reply(w, map[string]any{"count": len(ids), "max_model_len": l.Context, "tokens": append([]int32{}, ids...)})
}

func (s *server) detokenize(w http.ResponseWriter, r *http.Request, l *loaded) error {
	var q struct {
		Model  string  `json:"model"`
		Tokens []int32 `json:"tokens"`
	}
	if err := decode(r, &q); err != nil {
		return err
	}
	if _, err := s.named(q.Model); err != nil {
		return err
	}
	if l.Tok == nil {
		return wrong("tokens", "this model has no tokenizer")
	}
	for i, id := range q.Tokens {
		if id < 0 || int(id) >= l.Vocab {
			return wrong("tokens", "entry %d is %d; ids are from 0 to %d", i, id, l.Vocab-1)
		}
	}
	text := l.Tok.Decode(q.Tokens)
	return reply(w, map[string]any{"prompt": text, "content": text})
}

// prompts is one or more texts or lists of ids.
type prompts struct {
	texts []string
	ids   [][]int32
}

// UnmarshalJSON decodes once, by the first characters, because a prompt may be large.
func (p *prompts) UnmarshalJSON(data []byte) (err error) {
	switch first, second := opening(data); {
	case first == 'n': // null
		return nil
	case first == '"':
		p.texts = make([]string, 1)
		err = json.Unmarshal(data, &p.texts[0])
	case first != '[':
		err = errNoPrompt
	case second == '"':
		err = json.Unmarshal(data, &p.texts)
	case bytes.Contains(data, []byte("null")): // which Go reads as 0
		return wrong("prompt", "null is not a token id")
	case second == '[':
		err = json.Unmarshal(data, &p.ids)
	default:
		p.ids = make([][]int32, 1)
		err = json.Unmarshal(data, &p.ids[0])
	}
	if err != nil {
		return errNoPrompt
	}
	return nil
}

var errNoPrompt = wrong("prompt", "the value must be a string, a list of strings, a list of token ids, or a list of lists of token ids")

// opening gives the first character of a JSON value and, of a list, its first item's.
func opening(data []byte) (first, second byte) {
	const space = " \t\r\n"
	data = bytes.TrimLeft(data, space)
	if len(data) == 0 {
		return 0, 0
	}
	if rest := bytes.TrimLeft(data[1:], space); len(rest) > 0 {
		second = rest[0]
	}
	return data[0], second
}

// count is how many prompts there are.
func (p *prompts) count() int { return len(p.texts) + len(p.ids) }

// text is prompt number i as it was sent; "" where that were ids.
func (p *prompts) text(i int) string {
	if i < len(p.texts) {
		return p.texts[i]
	}
	return ""
}

// each gives the ids of every prompt; plain: of texts without the tokens that the tokenizer puts around.
func (p *prompts) each(l *loaded, plain bool) (all [][]int32, err error) {
	for _, text := range p.texts {
		ids, err := l.encodeText("prompt", text, plain)
		if err != nil {
			return nil, err
		}
		all = append(all, ids)
	}
	all = append(all, p.ids...)
	if len(all) == 0 {
		return nil, wrong("prompt", "the field is missing; it must be a string, a list of strings, a list of token ids, or a list of lists of token ids")
	}
	return all, nil
}

// words is a text or several.
type words []string

func (w *words) UnmarshalJSON(data []byte) error {
	var one string
	if string(data) != "null" && json.Unmarshal(data, &one) == nil {
		*w = words{one}
		return nil
	}
	var all []string
	if err := json.Unmarshal(data, &all); err != nil {
		return wrong("stop", "the value must be a string or a list of strings")
	}
	*w = all
	return nil
}

// piece is the text of one token by itself, with its bytes.
func (l *loaded) piece(id int32) (text string, raw []byte) {
	if l.Tok == nil {
		return fmt.Sprintf("token_id:%d", id), nil
	}
	raw = l.Tok.AppendBytes(nil, id)
	text = string(raw)
	if !isUTF8(raw) {
		text = "bytes:"
		for _, b := range raw {
			text += fmt.Sprintf(`\x%02x`, b)
		}
	}
	return text, raw
}
