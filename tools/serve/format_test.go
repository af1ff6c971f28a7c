package serve

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"monotron/megatron/inference/schema"
	"monotron/tokenizer"
	"monotron/tools/internal/answering"
)

// Claim (docs/serve.md): with response_format every text that ends is JSON of the schema, greedy
// or sampled, with several choices and together with texts without one; a schema that cannot be followed
// is refused with its field.
func TestResponseFormat(t *testing.T) {
	url, _ := goldenServer(t)
	schema := map[string]any{"type": "object", "additionalProperties": false, "required": []string{"ok", "n"},
		"properties": map[string]any{"ok": map[string]any{"type": "boolean"}, "n": map[string]any{"enum": []any{1, 22}}, "s": map[string]any{"type": "string", "maxLength": 3}}}
	ask := func(format any, more map[string]any) (int, completionAnswer) {
		body := map[string]any{"messages": []any{map[string]any{"role": "user", "content": "x"}}, "max_tokens": 40, "response_format": format}
		for k, v := range more {
			body[k] = v
		}
		status, raw := request(t, "POST", url+"/v1/chat/completions", body)
		var answer completionAnswer
		if err := json.Unmarshal(raw, &answer); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		return status, answer
	}
	of := map[string]any{"type": "json_schema", "json_schema": map[string]any{"name": "a", "strict": true, "schema": schema}}
	for _, more := range []map[string]any{{"temperature": 0}, {"temperature": 1, "seed": 3, "n": 8}, {"temperature": 5, "seed": 4, "n": 8, "logit_bias": map[string]any{"125": -100}}} {
		status, answer := ask(of, more)
		if status != 200 || len(answer.Choices) == 0 {
			t.Fatalf("%v: %d", more, status)
		}
		for _, c := range answer.Choices {
			var value struct {
				OK *bool
				N  *int
				S  *string
			}
			text := c.Message.Content
			if err := json.Unmarshal([]byte(text), &value); err != nil || value.OK == nil || value.N == nil || (*value.N != 1 && *value.N != 22) || value.S != nil && len([]rune(*value.S)) > 3 {
				t.Errorf("%v: %q (%s): %v", more, text, c.FinishReason, err)
			}
			if c.FinishReason != "stop" {
				t.Errorf("%q ends by %s", text, c.FinishReason)
			}
		}
	}
	if status, answer := ask(map[string]any{"type": "json_object"}, map[string]any{"temperature": 1, "seed": 1, "n": 4}); status != 200 {
		t.Errorf("%d", status)
	} else {
		for _, c := range answer.Choices {
			if text := strings.TrimSpace(c.Message.Content); !strings.HasPrefix(text, "{") || c.FinishReason == "stop" && !json.Valid([]byte(text)) {
				t.Errorf("%q (%s)", text, c.FinishReason)
			}
		}
	}
	for format, want := range map[string]string{
		`{"type":"grammar"}`:     "choose from text, json_object and json_schema",
		`{"type":"json_schema"}`: "json_schema.schema is missing",
		`{"type":"json_schema","json_schema":{"name":"a","schema":{"pattern":"x"}}}`: "pattern is not supported",
	} {
		status, raw := request(t, "POST", url+"/v1/chat/completions", fmt.Sprintf(`{"messages":[{"role":"user","content":"x"}],"response_format":%s}`, format))
		if status != 400 || !strings.Contains(string(raw), want) || !strings.Contains(string(raw), `"param":"response_format"`) {
			t.Errorf("%s: %d %s", format, status, raw)
		}
	}
	if status, answer := ask(map[string]any{"type": "text"}, map[string]any{"temperature": 0}); status != 200 || answer.Choices[0].Message.Content == "" {
		t.Errorf("text: %d %+v", status, answer)
	}
}

// Claim (docs/serve.md): a schema whose texts the model's tokens cannot spell is refused with status 400, which names
// what is missing.
func TestFormatThatCannotBeSpelled(t *testing.T) {
	letters := []string{"{", "}", ":", ",", " ", "1"}
	tok := spelling{letters: letters}
	l := &loaded{Model: &answering.Model{Tok: tok, Vocab: len(letters)}, words: func() *schema.Vocabulary { return schema.NewVocabulary(tok, len(letters), nil) }}
	var q ask
	if err := json.Unmarshal([]byte(`{"response_format":{"type":"json_schema","json_schema":{"name":"a","schema":{"type":"string"}}}}`), &q); err != nil {
		t.Fatal(err)
	}
	_, err := q.request(&server{}, l)
	if p := problemOf(err); p.Status != http.StatusBadRequest || p.Param != "response_format" || !strings.Contains(p.Message, `no token with '"'`) {
		t.Errorf("%d %s", p.Status, p.Message)
	}
}

// spelling is a vocabulary of letters.
type spelling struct {
	tokenizer.Tokenizer
	letters []string
}

func (s spelling) VocabSize() int                          { return len(s.letters) }
func (s spelling) AppendBytes(dst []byte, id int32) []byte { return append(dst, s.letters[id]...) }
