package hf

import (
	"os"
	"path/filepath"
	"testing"
	"unicode/utf8"
)

// FuzzTokenizerJSON: any bytes are either refused or make a tokenizer that
// encodes any text to ids it knows, or says why not.
func FuzzTokenizerJSON(f *testing.F) {
	files, _ := filepath.Glob("../testdata/peers/*/tokenizer.json")
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, "Hello wörld")
	}
	f.Add([]byte(`{"normalizer":{"type":"Replace","pattern":{"Regex":"[^\\s]{2,}+"},"content":"x"},"model":{"vocab":{"a":0},"merges":[["a","a"]]}}`), "aa b")
	f.Fuzz(func(t *testing.T, data []byte, text string) {
		tok, err := Parse("fuzz", data)
		if err != nil || !utf8.ValidString(text) || len(text) > 200 {
			return
		}
		ids, err := tok.Append(nil, text, true)
		if err != nil {
			return
		}
		for _, id := range ids {
			if id < 0 {
				t.Fatalf("id %d", id)
			}
		}
		tok.Decode(ids)
	})
}

// Claim: patterns are read as Oniguruma reads them; what would be read in
// another way is refused.
func TestPatterns(t *testing.T) {
	for pattern, want := range map[string]string{
		`\p{N}{1,3}`:           "x[١٢٣]y",
		`(?i:'s)`:              "x['ſ]y",
		`[^(\s|[.,])]+`:        "[ab],",
		`(?:ab)++b?`:           "[abab]",
		`\x{1F600}|[\u4e00-一]`: "a[一]",
		`.$`:                   "a[b]\n",
	} {
		plain, marked := "", want
		e, err := compile(pattern)
		if err != nil {
			t.Errorf("%s: %v", pattern, err)
			continue
		}
		for _, c := range marked {
			if c != '[' && c != ']' {
				plain += string(c)
			}
		}
		from, to := -1, -1
		if err := e.each(plain, func(a, b int) {
			if from < 0 {
				from, to = a, b
			}
		}); err != nil || from < 0 || plain[:from]+"["+plain[from:to]+"]"+plain[to:] != want {
			t.Errorf("%s on %q: %d to %d, %v; want %s", pattern, plain, from, to, err, want)
		}
	}
	for _, pattern := range []string{`a{2}+`, `a**`, `[a&&b]`, `\h`, `\bx`, `(?<n>a)`, `(`, `a)`, `[`, `\p{Greek}`, `\p{lower}`, `[a-\p{L}]`, `(?i:é)`, `*`, `a{x}`} {
		if _, err := compile(pattern); err == nil {
			t.Errorf("%s was read", pattern)
		}
	}
}
