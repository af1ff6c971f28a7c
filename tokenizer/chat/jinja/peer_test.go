package jinja

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"
)

// peerCase is a template with its variables, and what jinja2 made of it.
type peerCase struct {
	Template string          `json:"template"`
	Vars     json.RawMessage `json:"vars"`
	Text     *string         `json:"text"`
	Error    string          `json:"error"`
}

func (c *peerCase) render() (string, error) {
	vars := NewDict()
	if len(c.Vars) > 0 {
		v, err := FromJSON(c.Vars)
		if err != nil {
			return "", err
		}
		vars = v.(*Dict)
	}
	t, err := Parse(c.Template)
	if err != nil {
		return "", err
	}
	out, err := t.Render(vars, Options{Now: time.Date(2024, 7, 26, 13, 4, 5, 0, time.UTC)})
	return out.Text, err
}

// TestAnswersPeer is the Go half of tests/proofs/chat: it renders the cases of a file, a JSON
// object a line, and writes {"text"} or {"error"} for each to another.
func TestAnswersPeer(t *testing.T) {
	from, to := os.Getenv("MONOTRON_JINJA_CASES"), os.Getenv("MONOTRON_JINJA_ANSWERS")
	if from == "" {
		t.Skip("MONOTRON_JINJA_CASES names no file; tests/proofs/chat/jinja.sh does")
	}
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		t.Fatal(err)
	}
	w := bufio.NewWriter(out)
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 64<<20)
	answer := json.NewEncoder(w)
	for lines.Scan() {
		var c peerCase
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			t.Fatal(err)
		}
		text, err := c.render()
		a := map[string]string{"text": text}
		if err != nil && strings.Contains(err.Error(), Internal) {
			t.Errorf("%s: %v", c.Template, err)
		}
		if err != nil {
			a = map[string]string{"error": err.Error()}
		}
		if err := answer.Encode(a); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

// Claim (jinja2 3.1.6 with transformers' settings, testdata/jinja2.jsonl by tests/proofs/chat/jinja.py --subset):
// random templates over random values give jinja2's text, or fail where jinja2 fails.
func TestAsJinja2(t *testing.T) {
	data, err := os.ReadFile("testdata/jinja2.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	equal, refused := 0, 0
	for line := range strings.Lines(string(data)) {
		var c peerCase
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatal(err)
		}
		got, err := c.render()
		switch {
		case c.Text == nil && err == nil:
			t.Errorf("%s: %q, where jinja2 fails by %s", c.Template, got, c.Error)
		case c.Text == nil:
			refused++
		case err != nil:
			if !strings.Contains(err.Error(), "Unsupported") {
				t.Errorf("%s: %v, want %q", c.Template, err, *c.Text)
			}
		case got != *c.Text:
			t.Errorf("%s: %q, want %q", c.Template, got, *c.Text)
		default:
			equal++
		}
	}
	if t.Logf("%d equal, %d refused by both", equal, refused); equal < 400 || refused < 50 {
		t.Errorf("%d equal, %d refused by both: too few to show anything", equal, refused)
	}
}
