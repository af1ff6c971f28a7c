package serve

import (
	"encoding/json"
	"errors"
	"testing"

	"monotron/tokenizer/chat"
	"monotron/tools/internal/answering"
)

// Claim: the keys of a message with calls, of a call and of its function keep the order in which the client wrote
// them, as templates print them; a content of parts does not change the order either.
func TestOrderOfKeysInTurns(t *testing.T) {
	l := &loaded{Model: &answering.Model{NoChat: errors.New("none")}}
	raw := json.RawMessage(`[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"a":1},
		{"role":"assistant","content":null,"tool_calls":[{"type":"function","id":"i","function":{"name":"f","arguments":"{\"z\": 1, \"a\": \"<&\"}"}}]}]`)
	list, err := l.turns(raw)
	if err != nil {
		t.Fatal(err)
	}
	tmpl, err := chat.New(chat.Source{Text: "{% for m in messages %}{% for k in m %}{{ k }} {% endfor %}{{ m.content + '' }} {{ m.tool_calls | default('') | tojson }}\n{% endfor %}"})
	if err != nil {
		t.Fatal(err)
	}
	const want = "role content a a\nb \"\"\nrole content tool_calls  [{\"type\": \"function\", \"id\": \"i\", \"function\": {\"name\": \"f\", \"arguments\": {\"z\": 1, \"a\": \"<&\"}}}]\n"
	if got, err := renderTurns(tmpl, list, chat.Options{}); err != nil || got != want {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
}
