package serve

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// Claim (docs/serve.md): with response_format every text that ends is JSON of the schema, greedy
// or sampled, with several choices and beside texts without one; a schema that cannot be held to
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
