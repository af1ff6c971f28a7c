package serve

import (
	"testing"

	"monotron/tokenizer/chat"
)

// Claim (docs/serve.md): a template that loops over the parts of a content sees them; one that
// takes a text sees the parts joined, whatever it does with it.
func TestContentsAsLists(t *testing.T) {
	messages := []message{message(`{"role":"user","content":[{"type":"text","text":"it's a"},{"type":"text","text":" b\n"}]}`), message(`{"role":"assistant","content":"c"}`)}
	for template, want := range map[string]string{
		"{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}<{{ c.text }}>{% endfor %}{% endif %};{% endfor %}": "<it's a>< b\n>;c;",
		"{% for m in messages %}{{ m.content }};{% endfor %}":                    "it's a\n b\n;c;",
		"{% for m in messages %}{{ m['content'] | trim }};{% endfor %}":          "it's a\n b;c;",
		"{% for m in messages %}{{ m.content.strip() }};{% endfor %}":            "it's a\n b;c;",
		"{% for m in messages %}{{ 'x' + m.content }};{% endfor %}":              "xit's a\n b\n;xc;",
		"{% for m in messages %}{{ m.content | upper }};{% endfor %}":            "IT'S A\n B\n;C;",
		"{% for m in messages %}{{ m.role }}{% endfor %}{{ messages | length }}": "userassistant2",
	} {
		tmpl, err := chat.New(chat.Source{Text: template})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := renderTurns(tmpl, messages, chat.Options{}); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", template, got, err, want)
		}
	}
	tmpl, err := chat.New(chat.Source{Text: "{{ raise_exception('no') }}"})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := renderTurns(tmpl, messages, chat.Options{}); err == nil {
		t.Errorf("%q", got)
	}
}
