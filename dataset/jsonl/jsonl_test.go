package jsonl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"monotron/internal/exitcode"
)

// Claim: lines end as in Python's text mode, at every block size, and their
// numbers count on from block to block.
func TestLines(t *testing.T) {
	text := "\ufeffone\ntwo\r\nthree\rfour\r\r\n\nsix\u2028six\u0085six\n\rlast"
	want := []string{"1 one", "2 two", "3 three", "4 four", "5 ", "6 ", "7 six\u2028six\u0085six", "8 ", "9 last"}
	for size := 1; size < len(text)+2; size++ {
		for _, src := range []io.Reader{strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text))} {
			r := NewReader("x", src, size)
			var got []string
			next := int64(1)
			for {
				b, err := r.Next(nil)
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				lines := int64(0)
				for n, line := range b.Each() {
					got = append(got, fmt.Sprint(n, " ", string(line)))
					lines++
				}
				if b.Line != next || b.Lines != lines {
					t.Fatalf("size %d: a block of %d lines from %d on says %d from %d on", size, lines, next, b.Lines, b.Line)
				}
				next += lines
			}
			if !slices.Equal(got, want) && size >= 4 { // the mark is three bytes long
				t.Fatalf("size %d: %q, want %q", size, got, want)
			}
		}
	}
}

// Claim: a stream that breaks off is an error, not an end.
func TestBrokenStream(t *testing.T) {
	r := NewReader("x.gz", io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(io.ErrUnexpectedEOF)), 100)
	if _, err := r.Next(nil); err == nil || exitcode.CodeOf(err) != exitcode.BadData || !strings.Contains(err.Error(), "x.gz") {
		t.Errorf("%v", err)
	}
}

// Claim: values are read as Python's json module reads them.
func TestParse(t *testing.T) {
	for line, want := range map[string][]string{
		`{"text": "a"}`: {"a"},
		` {"x": [NaN, -Infinity, 1e5, {"y": "\ud800"}], "t\u0065xt" : "b\/\u0041\n" , "z":-0.5E+3} `: {"b/A\n"},
		`{"text": 5, "text": "last wins"}`:               {"last wins"},
		`{"text": ["a", "", "\ud83d\ude00"], "o": null}`: {"a", "", "\U0001F600"},
		`{"text": []}`: {},
	} {
		p := NewParser("text")
		err := p.Parse([]byte(line))
		got, err2 := p.Strings(0)
		if err != nil || err2 != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v, %v; want %q", line, got, err, err2, want)
		}
	}
	for line, says := range map[string]string{
		"":                            "empty",
		"  ":                          "empty",
		`{"text": "cut`:               "is not terminated",
		"{\"text\": \"a\tb\"}":        "control",
		`{"text": "a\ud800b"}`:        "surrogate",
		`{"text": "a\udc00"}`:         "surrogate",
		"{\"text\": \"a\xffb\"}":      "UTF-8",
		`{"txt": "x"}`:                "missing",
		`{"text": null}`:              "null",
		`{"text": 5}`:                 "must be a string or a list",
		`{"text": ["a", 5]}`:          "must be a string or a list",
		`["text"]`:                    "jq -c",
		"plain words":                 "--input-format text",
		"\x00{\x00\"":                 "iconv",
		`{"text": "a"} x`:             "after",
		`{"text": "a",}`:              "key",
		`{"text" "a"}`:                "colon",
		`{"n": 01, "text": "a"}`:      "comma",
		`{"n": 1., "text": "a"}`:      "comma",
		`{"n": +1, "text": "a"}`:      "value",
		`{"n": nul, "text": "a"}`:     "value",
		`{"text": "\x"}`:              "escape",
		`{"text": "\u12g4"}`:          "escape",
		strings.Repeat(`{"a":`, 5000): "nested",
	} {
		p := NewParser("text")
		err := p.Parse([]byte(line))
		if err == nil {
			_, err = p.Strings(0)
		}
		if err == nil || exitcode.CodeOf(err) != exitcode.BadData || !strings.Contains(err.Error(), says) {
			t.Errorf("%.40s: %v; want something about %q", line, err, says)
		}
	}
}

// FuzzParse: whatever encoding/json takes for an object with a string is read
// alike here, and no bytes make the parser fail in another way than by an error.
func FuzzParse(f *testing.F) {
	for _, s := range []string{`{"text":"a"}`, `{"text":["a","\u00e9"],"b":[1,2.5e-3]}`, `{"a":{"text":1},"text":"\ud83d\ude00"}`, "{\"text\":\"\xff\"}", `{`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		p := NewParser("text")
		err := p.Parse(line)
		if err != nil {
			if exitcode.CodeOf(err) != exitcode.BadData {
				t.Fatal(err)
			}
			return
		}
		got, err := p.Strings(0)
		var want map[string]any
		if err != nil || json.Unmarshal(line, &want) != nil {
			return // NaN and the like are Python's only
		}
		if s, ok := want["text"].(string); ok && (len(got) != 1 || got[0] != s) {
			t.Fatalf("%q, encoding/json has %q", got, s)
		}
	})
}

// Claim: a file that becomes shorter while it is read is an error, not the end
// of the input.
func TestCutWhileRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.jsonl")
	if err := os.WriteFile(path, bytes.Repeat([]byte("{\"text\":\"a\"}\n"), 100000), 0o644); err != nil {
		t.Fatal(err)
	}
	r, err := Open(path, 1000)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := os.Truncate(path, 13*50000); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = r.Next(nil)
	}
	if exitcode.CodeOf(err) != exitcode.IO || !strings.Contains(err.Error(), "byte 650000, but had 1300000") {
		t.Errorf("got %v", err)
	}
}
