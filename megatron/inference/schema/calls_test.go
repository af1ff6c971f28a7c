package schema

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
)

// Claim (docs/serve.md): with calls of tools every text is other text, then calls whose arguments
// are of their tool's schema; a text without a call is any text where calls are optional. The
// mark may overlap itself, and tokens may reach over its end.
func TestTextsWithCalls(t *testing.T) {
	object := func(name, schema string) Tool {
		return Tool{Open: `{"name": "` + name + `", "arguments": `, Close: "}\n</call>", Arguments: json.RawMessage(schema)}
	}
	tools := []Tool{
		object("add", `{"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}`),
		object("say", `{"type": "object", "properties": {"text": {"type": "string", "maxLength": 5}}, "required": ["text"]}`),
	}
	tok := newTokens()
	tok.list = append(tok.list, "<<call>", "<<call>\n", "<call>{", "<<", "call>\n{\"name", "</call>")
	v := NewVocabulary(tok, len(tok.list), []int32{end})
	for name, c := range map[string]Calls{
		"one":             {Begin: "<<call>\n", Tools: tools, One: true},
		"several":         {Begin: "<<call>\n", Again: "\n<<call>\n", Tools: tools},
		"optional":        {Begin: "<<call>\n", Again: "\n<<call>\n", Tools: tools, Optional: true},
		"without a mark":  {Tools: tools, Optional: true, Opening: '{', One: true},
		"mark in a mark":  {Begin: "aab", Tools: tools, Optional: true, One: true, End: "."},
		"end after calls": {Begin: "<<call>\n", Again: ";", End: "</all>", Tools: tools},
	} {
		g, err := CompileCalls(c)
		if err != nil {
			t.Fatal(err)
		}
		random, seen := rand.New(rand.NewPCG(7, 7)), 0
		for n := range 40 {
			start := ""
			switch {
			case c.Optional && c.Begin != "" && n%2 == 0:
				start = "<<<ca" + "aa" + c.Begin[:len(c.Begin)-n/2%2]
			case c.Optional && c.Begin == "" && n%2 == 0:
				start = "{"
			}
			text := writeFrom(t, g, tok, v, random, start)
			before, rest, found := strings.Cut(text, c.Begin)
			if c.Begin == "" {
				found = strings.HasPrefix(text, "{")
			}
			switch {
			case !found && !c.Optional:
				t.Fatalf("%s: %q has no call", name, text)
			case !found:
				continue
			case before != "" && !c.Optional:
				t.Fatalf("%s: %q has text before its call", name, text)
			}
			rest, ended := strings.CutSuffix(rest, c.End)
			calls := strings.Split(rest, "\n</call>")
			if last := calls[len(calls)-1]; !ended || last != "" || c.One && len(calls) != 2 {
				t.Fatalf("%s: %q ends with %q", name, text, last)
			}
			for i, call := range calls[:len(calls)-1] {
				seen++
				if i > 0 {
					call = strings.TrimPrefix(call, c.Again)
				}
				var got struct {
					Name      string
					Arguments struct {
						A, B *int
						Text *string
					}
				}
				err := json.Unmarshal([]byte(call), &got)
				a := got.Arguments
				if err != nil || !(got.Name == "add" && a.A != nil && a.B != nil || got.Name == "say" && a.Text != nil) {
					t.Fatalf("%s: call %q of %q: %v", name, call, text, err)
				}
			}
		}
		if seen < 10 {
			t.Errorf("%s: only %d calls in 40 texts", name, seen)
		}
	}
}

// Claim: a tool whose schema is not supported is named by its number.
func TestCallsOfUnsupportedSchema(t *testing.T) {
	_, err := CompileCalls(Calls{Tools: []Tool{{Arguments: json.RawMessage(`true`)}, {Arguments: json.RawMessage(`{"pattern": "x"}`)}}})
	if err == nil || !strings.Contains(err.Error(), "tool 1: #: pattern is not supported here") {
		t.Error(err)
	}
}
