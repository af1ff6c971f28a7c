package gguf

import (
	"strings"
	"testing"

	"monotron/tokenizer/chat"
)

// chatML is a template with a system text of its own where a conversation has none.
const chatML = `{% for m in messages %}{% if loop.first and m.role != 'system' %}<|im_start|>system
Be kind.<|im_end|>
{% endif %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`

// Claim: a template that puts fixed texts around messages is translated, and gives the same
// texts (turnsOf compares them); one that does not is refused. Source: the template itself.
func TestTemplateIsTranslated(t *testing.T) {
	r, err := turnsOf(chat.Source{Text: "{{ bos_token }}" + chatML, BOS: "<s>"}, "<s>")
	if err != nil {
		t.Fatal(err)
	}
	want := `{{ if .Messages }}{{ if ne (index .Messages 0).Role "system" }}<|im_start|>system
Be kind.<|im_end|>
{{ end }}{{ range .Messages }}`
	if got := r.template(); !strings.HasPrefix(got, want) || strings.Contains(got, "<s>") {
		t.Errorf("%s", got)
	}
	for _, text := range []string{
		`{% for m in messages %}{{ loop.index }}: {{ m.content }}{% endfor %}`,                                    // counts messages
		`{% for m in messages %}{{ m.content if loop.last else m.content | upper }}{% endfor %}`,                  // the last is another
		`{% for m in messages %}{% if m.role == 'user' %}[INST] {{ messages[0].content }}{% endif %}{% endfor %}`, // the system text is in the user's
		`"""{% for m in messages %}{{ m.role }}{{ m.content }}{% endfor %}`,
	} {
		if r, err := turnsOf(chat.Source{Text: text}, ""); err == nil {
			t.Errorf("%s became %s", text, r.template())
		}
	}
}
