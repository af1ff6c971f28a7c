package serve

import (
	"encoding/json"
	"strings"
	"testing"
)

// Claim (docs/serve.md): documents and reasoning_effort reach the template, where chat_template_kwargs go before them.
func TestFieldsOfTemplates(t *testing.T) {
	for body, want := range map[string]string{
		`{}`:                             `{}`,
		`{"reasoning_effort": null}`:     `{}`,
		`{"reasoning_effort": "low"}`:    `{"reasoning_effort":"low"}`,
		`{"reasoning_effort": "none"}`:   `{"enable_thinking":false,"thinking":false}`,
		`{"documents": [{"text": "d"}]}`: `{} documents [{"text": "d"}]`,
		`{"reasoning_effort": "low", "chat_template_kwargs": {"reasoning_effort": "high", "a": 1}}`: `{"a":1,"reasoning_effort":"high"}`,
	} {
		var a templateAsk
		if err := json.Unmarshal([]byte(body), &a); err != nil {
			t.Fatal(err)
		}
		o, err := a.options()
		got := string(o.Variables)
		if got == "" {
			got = "{}"
		}
		if len(o.Documents) > 0 {
			got += " documents " + string(o.Documents)
		}
		if err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", body, got, err, want)
		}
	}
}

// Claim (docs/serve.md): fields of other servers that would change an answer are refused by name, with the field to
// use; values that change nothing are taken.
func TestFieldsOfOtherServers(t *testing.T) {
	url, _ := goldenServer(t)
	post := func(fields string) (int, string) {
		status, raw := request(t, "POST", url+"/v1/chat/completions", json.RawMessage(`{"messages": [{"role": "user", "content": "x"}], "max_tokens": 8, "temperature": 0, `+fields+`}`))
		return status, string(raw)
	}
	for fields, want := range map[string]string{
		`"chat_template": "x"`:               "chat_template: a request cannot give a template",
		`"min_tokens": 3`:                    "min_tokens: not supported",
		`"guided_json": {}`:                  "guided_json: use response_format",
		`"n_predict": 5, "typical_p": 0.5`:   "n_predict: use max_tokens; typical_p: not supported",
		`"include_stop_str_in_output": true`: "include_stop_str_in_output: not supported",
	} {
		if status, raw := post(fields); status != 400 || !strings.Contains(raw, want) {
			t.Errorf("%s: %d %s", fields, status, raw)
		}
	}
	if status, raw := post(`"min_tokens": 0, "skip_special_tokens": true, "grammar": "", "typical_p": 1.0, "repeat_penalty": 1, "prompt_logprobs": null`); status != 200 {
		t.Errorf("%d %s", status, raw)
	}
	// The schema where llama.cpp's clients send it.
	if status, raw := post(`"response_format": {"type": "json_object", "schema": {"const": 17}}`); status != 200 || !strings.Contains(raw, `17","refusal"`) {
		t.Errorf("%d %s", status, raw)
	}
}
