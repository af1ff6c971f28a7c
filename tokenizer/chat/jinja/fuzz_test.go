package jinja

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// Claim: no template and no value makes the parser or a render panic, run past its bounds, or
// write text that is not UTF-8; the same template and values give the same result twice.
func FuzzRender(f *testing.F) {
	data, err := os.ReadFile("testdata/jinja2.jsonl")
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		var c peerCase
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			f.Fatal(err)
		}
		f.Add(c.Template, string(c.Vars))
	}
	for _, text := range hostile {
		f.Add(text, "{}")
	}
	small := Limits{Steps: 200_000, Memory: 4 << 20, Output: 1 << 20, Depth: 50}
	f.Fuzz(func(t *testing.T, text, vars string) {
		template, err := Parse(text)
		check(t, err)
		v, notJSON := FromJSON([]byte(vars))
		d, is := v.(*Dict)
		if notJSON != nil || !is {
			d = NewDict()
		}
		if err != nil {
			return
		}
		start := time.Now()
		out, err := template.Render(d, Options{Limits: small})
		check(t, err)
		if !utf8.ValidString(out.Text) {
			t.Fatalf("text that is not UTF-8: %q", out.Text)
		}
		if d := time.Since(start); d > 5*time.Second {
			t.Fatalf("%v for 200,000 steps", d)
		}
		again, err2 := template.Render(d, Options{Limits: small})
		if again.Text != out.Text || (err == nil) != (err2 == nil) {
			t.Fatalf("%q, %v and then %q, %v", out.Text, err, again.Text, err2)
		}
	})
}

func check(t *testing.T, err error) {
	t.Helper()
	var e *Error
	if err != nil && (!errors.As(err, &e) || e.Class == Internal) {
		t.Fatal(err)
	}
}
