package tokenizer

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"monotron/internal/exitcode"
)

// peers are the tokenizers of testdata/peers, by name.
func peers(t testing.TB) map[string]Config {
	t.Helper()
	const dir = "testdata/peers/"
	n := 1000
	out := map[string]Config{
		"tik-v1": {Type: "TikTokenizer", Model: dir + "ranks.tik.json", TikPattern: "v1", TikSpecials: &n},
		"tik-v2": {Type: "TikTokenizer", Model: dir + "ranks.tik.json"},
	}
	for name, c := range out {
		ranks, err := readRanks(c.Model)
		if err != nil {
			t.Fatal(err)
		}
		c.VocabSize = len(ranks) + 1000
		out[name] = c
	}
	folders, _ := filepath.Glob(dir + "*/tokenizer.json")
	for _, path := range folders {
		folder := filepath.Dir(path)
		out[filepath.Base(folder)] = Config{Type: "HuggingFaceTokenizer", Model: folder}
	}
	models, _ := filepath.Glob(dir + "*.model")
	for _, path := range models {
		out[strings.TrimSuffix(filepath.Base(path), ".model")] = Config{Type: "Llama2Tokenizer", Model: path}
	}
	if len(out) < 10 {
		t.Fatalf("testdata/peers holds %d tokenizers only", len(out))
	}
	return out
}

// Claim: ids and decoded texts are those of tokenizers 0.23, sentencepiece 0.2
// and tiktoken 0.14 for every style of tokenizer.
func TestPeers(t *testing.T) {
	for name, c := range peers(t) {
		tok, err := FromConfig(c)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		data, err := os.ReadFile("testdata/peers/" + name + ".jsonl")
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(data) {
			var want struct {
				Text, Back string
				IDs        []int32
			}
			if err := json.Unmarshal(line, &want); err != nil {
				t.Fatal(err)
			}
			got, err := tok.Encode(want.Text)
			if err != nil || !slices.Equal(got, want.IDs) {
				t.Errorf("%s: %+q is %v, %v; want %v", name, want.Text, got, err, want.IDs)
			}
			if back := tok.Decode(want.IDs); back != want.Back {
				t.Errorf("%s: %v decodes to %+q, want %+q", name, want.IDs, back, want.Back)
			}
		}
		if _, err := tok.Encode("a\xff"); exitcode.CodeOf(err) != exitcode.BadData {
			t.Errorf("%s: text that is not UTF-8: %v", name, err)
		}
	}
}

// Claim: streamed pieces of any tokenizer are complete characters, and together
// they are the decoded text, but for the blank that some styles drop in front.
func TestStreamsOfPeers(t *testing.T) {
	const text = "Naïve 你好 👩‍🚀, done: 3.14 e\u0301!"
	for name, c := range peers(t) {
		tok, err := FromConfig(c)
		if err != nil {
			t.Fatal(err)
		}
		ids, err := tok.Encode(text)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		s := NewStream(tok)
		for _, id := range ids {
			piece := s.Push(id)
			if strings.ContainsRune(piece, '\uFFFD') {
				t.Errorf("%s: a part of a character came out of id %d", name, id)
			}
			b.WriteString(piece)
		}
		b.WriteString(s.Flush())
		if got, want := strings.TrimPrefix(b.String(), " "), strings.TrimPrefix(tok.Decode(ids), " "); got != want {
			// Special tokens in front are shown, and hide the blank behind them.
			if name != "llama2" {
				t.Errorf("%s: streamed %q, decoded %q", name, got, want)
			}
		}
	}
}

// Claim: what a file or the flags ask for that is not there is one error naming it.
func TestModelErrors(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	files := 0
	hf := func(content string) Config {
		files++
		return Config{Type: "HuggingFaceTokenizer", Model: file(strconv.Itoa(files)+"/tokenizer.json", content)}
	}
	model := `"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}`
	zero := 3
	for _, c := range []struct {
		config Config
		code   exitcode.Code
		says   string
	}{
		{hf(`{`), exitcode.BadData, "tokenizer.json"},
		{hf(`{"model": null}`), exitcode.BadData, "the key model is missing"},
		{hf(`{"version": "2.0", ` + model + `}`), exitcode.BadData, "2.0"},
		{hf(`{"model": {"type": "WordPiece", "vocab": {}}}`), exitcode.BadData, "WordPiece"},
		{hf(`{"model": {"type": "BPE", "dropout": 0.1, "vocab": {}, "merges": []}}`), exitcode.BadData, "dropout"},
		{hf(`{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}}`), exitcode.BadData, "merge 0"},
		{hf(`{"normalizer": {"type": "Rot13"}, ` + model + `}`), exitcode.BadData, "Rot13"},
		{hf(`{"pre_tokenizer": {"type": "UnicodeScripts"}, ` + model + `}`), exitcode.BadData, "UnicodeScripts"},
		{hf(`{"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "a\\K"}, "behavior": "Isolated", "invert": false}, ` + model + `}`), exitcode.BadData, `\K`},
		{hf(`{"decoder": {"type": "CTC"}, ` + model + `}`), exitcode.BadData, "CTC"},
		{hf(`{"post_processor": {"type": "Other"}, ` + model + `}`), exitcode.BadData, "Other"},
		{hf(`{"added_tokens": [{"id": 7, "content": "<x>", "special": true}], ` + model + `}`), exitcode.BadData, "<x>"},
		{Config{Type: "HuggingFaceTokenizer", Model: filepath.Join(dir, "none")}, exitcode.NoInput, "none"},
		{Config{Type: "Llama2Tokenizer"}, exitcode.Usage, "--tokenizer-model"},
		{Config{Type: "Llama2Tokenizer", Model: file("x.model", "\xff\xff")}, exitcode.BadData, "x.model"},
		{Config{Type: "TikTokenizer", Model: "testdata/peers/ranks.tik.json"}, exitcode.Usage, "--vocab-size"},
		{Config{Type: "TikTokenizer", Model: "testdata/peers/ranks.tik.json", TikPattern: "v3"}, exitcode.Usage, "v3"},
		{Config{Type: "TikTokenizer", Model: "testdata/peers/ranks.tik.json", TikSpecials: &zero}, exitcode.Usage, "--tiktoken-num-special-tokens 3"},
	} {
		tok, err := FromConfig(c.config)
		if err == nil || tok != nil || exitcode.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.says) {
			t.Errorf("want %q and exit code %d, found %v (%d)", c.says, c.code, err, exitcode.CodeOf(err))
		}
	}
}

// Claim: tokenizer_config.json names EOD and padding, may ask for BOS, and
// special tokens it names are found in texts.
func TestTokenizerConfig(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("tokenizer.json", `{"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "<e>": 2, "<s>": 3}, "merges": []}}`)
	write("tokenizer_config.json", `{"tokenizer_class": "LlamaTokenizer", "add_bos_token": true, "bos_token": "<s>", "eos_token": {"content": "<e>"}, "pad_token": "<p>"}`)
	tok, err := FromConfig(Config{Type: "HuggingFaceTokenizer", Model: dir})
	if err != nil {
		t.Fatal(err)
	}
	ids, err := tok.Encode("a<e>b<p>")
	if pad, ok := tok.Pad(); err != nil || !slices.Equal(ids, []int32{3, 0, 2, 1, 4}) || tok.EOD() != 2 || pad != 4 || !ok || tok.VocabSize() != 5 {
		t.Errorf("%v, %v, EOD %d, pad %d, %d ids", ids, err, tok.EOD(), pad, tok.VocabSize())
	}
	tok, err = FromConfig(Config{Type: "HuggingFaceTokenizer", Model: dir, NoSpecial: true})
	if err != nil {
		t.Fatal(err)
	}
	if ids, err := tok.Encode("ab"); err != nil || !slices.Equal(ids, []int32{0, 1}) {
		t.Errorf("without special tokens: %v, %v", ids, err)
	}
}

// Claim: --tokenizer-sentencepiece-legacy gives the ids, the texts and the
// vocabulary size of Megatron's wrapper (testdata/legacy.jsonl was made by it).
func TestLegacySentencePiece(t *testing.T) {
	data, err := os.ReadFile("testdata/legacy.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(data) {
		var want struct {
			Model string
			Size  int
			Rows  [][3]json.RawMessage
		}
		if err := json.Unmarshal(line, &want); err != nil {
			t.Fatal(err)
		}
		tok, err := FromConfig(Config{Type: "Llama2Tokenizer", Model: "testdata/peers/" + want.Model + ".model", Legacy: true,
			SpecialTokens: []string{"<x>", "[INST]", "</s>", "<xy>", "<x>", "the"}})
		if err != nil || tok.VocabSize() != want.Size || len(want.Rows) == 0 {
			t.Fatalf("%s: %d rows, %v", want.Model, len(want.Rows), err)
		}
		for _, row := range want.Rows {
			var text, back string
			var ids []int32
			for i, to := range []any{&text, &ids, &back} {
				if err := json.Unmarshal(row[i], to); err != nil {
					t.Fatal(err)
				}
			}
			got, err := tok.Encode(text)
			if err != nil || !slices.Equal(got, ids) || tok.Decode(ids) != back {
				t.Errorf("%s, %q: %v and %q, %v; want %v and %q", want.Model, text, got, tok.Decode(ids), err, ids, back)
			}
		}
	}
}
