package chat

import (
	"encoding/json"
	"strings"
	"testing"
)

// A template without end is refused with the reason; it neither ends the process nor
// takes the machine.
func TestLimits(t *testing.T) {
	messages := []json.RawMessage{json.RawMessage(`{"role": "user", "content": "Hi"}`)}
	for text, want := range map[string]string{
		"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}":                                                               "calls itself without end",
		"{% macro f(x) %}{% if x %}{{ f(x) }}{% endif %}{% endmacro %}{{ f(1) }}":                                       "calls itself without end",
		"{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}":                                                       "calls itself without end",
		"{% for i in range(1000000000) %}{% endfor %}":                                                                  "more than 100000 numbers",
		"{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}":                              "not done after",
		"{% for i in range(90000) %}{{ 'a' * 1000 }}{% endfor %}":                                                       "writes more than 16 MiB",
		"{% set n = namespace(a=[1]) %}{% for i in range(60) %}{% set n.a = n.a + n.a %}{% endfor %}{{ n.a | length }}": "MiB of memory",
	} {
		template, err := New(Source{Text: text})
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if _, err := template.Render(messages, Options{}); err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 300 {
			t.Errorf("%s: %.300v, want %q", text, err, want)
		}
	}
	template, err := New(Source{Text: "{% for i in range(3, 0, -1) %}{{ i }}{% endfor %}{{ range(5) | length }}{% for i in range(2) %}{{ loop.index }}{% endfor %}"})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := template.Render(messages, Options{}); err != nil || got != "321512" {
		t.Errorf("%q, %v", got, err)
	}
}
