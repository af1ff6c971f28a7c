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
	for _, text := range small {
		f.Add([]byte(text), "<s>Ab aab 12\u00e9 don't")
	}
	f.Fuzz(func(t *testing.T, data []byte, text string) {
		tok, err := Parse("fuzz", data, Changes{})
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

// small are files of few tokens with every kind of part, in which a changed byte
// goes far.
var small = []string{
	`{"added_tokens":[{"id":7,"content":"<s>","special":true,"lstrip":true,"single_word":true,"normalized":false}],"normalizer":{"type":"Sequence","normalizers":[{"type":"NFKC"},{"type":"Lowercase"},{"type":"Strip","strip_left":true,"strip_right":true},{"type":"StripAccents"}]},"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},{"type":"Punctuation","behavior":"Isolated"},{"type":"WhitespaceSplit"}]},"post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"pair":[],"special_tokens":{"<s>":{"id":"<s>","ids":[7],"tokens":["<s>"]}}},"decoder":{"type":"BPEDecoder","suffix":"</w>"},"model":{"type":"BPE","unk_token":"u","fuse_unk":true,"end_of_word_suffix":"</w>","vocab":{"u":0,"a":1,"b":2,"a</w>":3,"b</w>":4,"ab</w>":5,"aab</w>":6},"merges":["a b</w>","a ab</w>"]}}`,
	`{"pre_tokenizer":{"type":"Metaspace","replacement":"\u2581","prepend_scheme":"always","split":true},"decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"\u2581"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]},"model":{"type":"Unigram","unk_id":0,"byte_fallback":false,"vocab":[["<unk>",0.0],["\u2581",-1.5],["a",-2.0],["b",-2.0],["\u2581a",-2.5],["ab",-3.0]]}}`,
	`{"pre_tokenizer":{"type":"Split","pattern":{"Regex":"\\p{L}+| ?[^\\s\\p{L}]+"},"behavior":"MergedWithNext","invert":true},"model":{"type":"BPE","byte_fallback":true,"ignore_merges":true,"vocab":{"a":0,"b":1,"<0x20>":2,"aa":3},"merges":[["a","a"]]}}`,
	`{"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":true,"use_regex":true},"decoder":{"type":"ByteLevel"},"post_processor":{"type":"RobertaProcessing","sep":["b",1],"cls":["a",0],"trim_offsets":true,"add_prefix_space":false},"model":{"vocab":{"a":0,"b":1,"Ġ":2,"ab":3},"merges":[["a","b"]]}}`,
}

// Claim: the files the fuzzer starts from are read, merges as lines among them.
func TestSmallFiles(t *testing.T) {
	for i, text := range small {
		tok, err := Parse("small", []byte(text), Changes{})
		if err != nil {
			t.Errorf("file %d: %v", i, err)
			continue
		}
		if ids, err := tok.Append(nil, "aab", true); err != nil || len(ids) == 0 {
			t.Errorf("file %d: %v, %v", i, ids, err)
		}
	}
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
