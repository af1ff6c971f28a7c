package chat

import (
	"encoding/json"
	"strings"
	"testing"
)

// Claim: a template without end is refused with the reason, which does not depend on how fast
// the machine is.
func TestLimits(t *testing.T) {
	messages := []json.RawMessage{json.RawMessage(`{"role": "user", "content": "Hi"}`)}
	for text, want := range map[string]string{
		"{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}":                                                               "are nested more than",
		"{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}":                                                       "are nested more than",
		"{% for i in range(1000000000) %}{% endfor %}":                                                                  "MAX_RANGE (100000)",
		"{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}":                              "more than 10000000 steps",
		"{% for i in range(90000) %}{{ 'a' * 1000 }}{% endfor %}":                                                       "writes more than 16 MiB",
		"{% set n = namespace(a=[1]) %}{% for i in range(60) %}{% set n.a = n.a + n.a %}{% endfor %}{{ n.a | length }}": "values of more than 256 MiB",
		"{{ 'a' * 10**9 }}": "values of more than 256 MiB",
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
}
