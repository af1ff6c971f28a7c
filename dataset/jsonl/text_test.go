package jsonl

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

// Claim (RFC 8259, section 8; Unicode 3.9): strings that stand for no text are found, with the
// top-level field that holds them.
func TestCheckText(t *testing.T) {
	for data, want := range map[string]string{
		`{"prompt": "a"}`: "",
		`{"prompt": "\ud83d\ude00", "stop": ["\u00e9"]}`:                         "",
		`{"prompt": "\\ud83d"}`:                                                  "",
		`{"n": 1, "prompt": "a\ud83d b"}`:                                        "prompt 21",
		`{"prompt": "a", "stop": ["x", "\ude00"]}`:                               "stop 31",
		`{"prompt": "\ud83d\ud83d\ude00"}`:                                       "prompt 12",
		`{"messages": [{"role": "a", "content": [{"text": "\uDC00"}]}], "n": 1}`: "messages 50",
		"{\"prompt\": \"a\xff b\"}":                                              "prompt 13",
		"{\"a\": {\"b\": \"x\"}, \"stop\": \"\xc3\"}":                            "stop 27",
		"{\"a\": \"\xed\xa0\x80\"}":                                              "a 7", // a surrogate as UTF-8
		"\xff":                                                                   " 0",
		`{"a": "\ud8`:                                                            "",
		`"\ud800"`:                                                               " 1",
	} {
		got := ""
		if err := CheckText([]byte(data)); err != nil {
			e := err.(*NotText)
			got = fmt.Sprint(e.Key, " ", e.At)
		}
		if got != want {
			t.Errorf("%q: %q, want %q", data, got, want)
		}
	}
}

// Claim: on valid JSON CheckText agrees with encoding/json, which puts U+FFFD where there is no
// character.
func TestCheckTextAgreesWithDecoder(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	parts := []string{"a", "é", `\n`, `\\`, `\"`, `\ud83d`, `\ude00`, `\u0041`, `\ud83d\ude00`, "\xff", "\xc3", "\xa9", "{", ",", ":"}
	bad := 0
	for range 20000 {
		text := ""
		for range r.IntN(6) {
			text += parts[r.IntN(len(parts))]
		}
		data := []byte(`{"a": [{"k": 1}, "` + text + `"], "b": 2}`)
		var decoded struct{ A []any }
		if json.Unmarshal(data, &decoded) != nil {
			continue
		}
		want := strings.ContainsRune(decoded.A[1].(string), utf8.RuneError)
		if err := CheckText(data); (err != nil) != want {
			t.Fatalf("%q: %v, the decoder's text is %q", data, err, decoded.A[1])
		} else if err != nil {
			bad++
		}
	}
	if bad < 1000 {
		t.Errorf("%d bad texts: the test does not try what it should", bad)
	}
}
