package tokenizer

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"monotron/internal/exitcode"
)

// Claim: numbers are read as Python's int() reads them (Megatron-LM, null_tokenizer.py).
func TestNullReadsPythonNumbers(t *testing.T) {
	n, err := NewNull(2000, -1, NoPad)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string][]int32{
		"1 2 3":         {1, 2, 3},
		"+5 007 1_000":  {5, 7, 1000},
		"\t7\n 8\u00a0": {7, 8},
		"١٢ １":          {12, 1},
		"-0 𝟗":          {0, 9},
		"2147483647":    {2147483647},
	} {
		if got, err := n.Encode(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "1  2", " 1", "_1", "1_", "1__0", "--1", "1.0", "x", "-3", "2147483648", "²", "0x10", "\x1c9"} {
		if got, err := n.Encode(text); err == nil || exitcode.CodeOf(err) != exitcode.BadData {
			t.Errorf("%q was read as %v, %v", text, got, err)
		}
	}
	if n.EOD() != 1999 || n.VocabSize() != 2000 {
		t.Errorf("EOD %d of %d ids", n.EOD(), n.VocabSize())
	}
}

// Claim: a stream of ids never yields a part of a character, and nothing is lost.
func TestStreamGivesCompleteCharacters(t *testing.T) {
	text := "naïve 你好 👩‍🚀 done"
	ids, err := embedded().Encode(text)
	if err != nil {
		t.Fatal(err)
	}
	s := NewStream(embedded())
	var got strings.Builder
	for _, id := range ids {
		piece := s.Push(id)
		if !utf8.ValidString(piece) || strings.ContainsRune(piece, utf8.RuneError) {
			t.Errorf("id %d gave %q", id, piece)
		}
		got.WriteString(piece)
	}
	if got.String()+s.Flush() != text {
		t.Errorf("streamed %q", got.String())
	}
	if s.Push(172) != "" {
		t.Error("the first byte of an emoji came out before the rest")
	}
	if s.Flush() != "\uFFFD" || s.Flush() != "" {
		t.Error("a cut character must come out once, as U+FFFD")
	}
}

// Claim: a character vocabulary survives its file, and other characters are
// refused with their position.
func TestCharFile(t *testing.T) {
	c, err := CharFromText("ba\n<é\U0001F600")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "chars.json")
	if err := os.WriteFile(path, c.JSON(), 0o644); err != nil {
		t.Fatal(err)
	}
	back, err := FromConfig(Config{Type: "CharTokenizer", VocabFile: path})
	if err != nil {
		t.Fatal(err)
	}
	ids, err := back.Encode("\n<abé\U0001F600")
	if err != nil || !slices.Equal(ids, []int32{0, 1, 2, 3, 4, 5}) || back.Decode([]int32{5, 9}) != "\U0001F600\uFFFD" {
		t.Errorf("%v, %v", ids, err)
	}
	if _, err := back.Encode("abcd"); err == nil || !strings.Contains(err.Error(), "byte 2") {
		t.Errorf("an unknown character: %v", err)
	}
	if back.EOD() != -1 {
		t.Error("a character tokenizer has no EOD")
	}
}

// Claim: every bad set of flags or files is one error with its exit code.
func TestConfigErrors(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	merges := write("merges.txt", "#version: 0.2\nĠ t\n")
	for name, c := range map[string]struct {
		config Config
		code   exitcode.Code
		says   string
	}{
		"no type":      {Config{}, exitcode.Usage, "--tokenizer-type"},
		"unknown type": {Config{Type: "Tik"}, exitcode.Usage, "Tik"},
		"null size":    {Config{Type: "NullTokenizer"}, exitcode.Usage, "--vocab-size"},
		"one of two":   {Config{Type: "GPT2BPETokenizer", VocabFile: "x"}, exitcode.Usage, "needs both --vocab-file and --merge-file"},
		"missing":      {Config{Type: "GPT2BPETokenizer", VocabFile: dir + "/none", MergeFile: merges}, exitcode.NoInput, "none"},
		"not JSON":     {Config{Type: "GPT2BPETokenizer", VocabFile: merges, MergeFile: merges}, exitcode.BadData, "merges.txt"},
		"gap":          {Config{Type: "GPT2BPETokenizer", VocabFile: write("v.json", `{"a": 5}`), MergeFile: merges}, exitcode.BadData, "id 5"},
		"no char file": {Config{Type: "CharTokenizer"}, exitcode.Usage, "--vocab-file"},
		"two chars":    {Config{Type: "CharTokenizer", VocabFile: write("c.json", `["ab"]`)}, exitcode.BadData, "entry 0"},
		"twice":        {Config{Type: "CharTokenizer", VocabFile: write("d.json", `["a","a"]`)}, exitcode.BadData, "twice"},
		"hf":           {Config{Type: "HuggingFaceTokenizer"}, exitcode.Usage, "--tokenizer-model"},
		"hf's hub":     {Config{Type: "HuggingFaceTokenizer", Model: "gpt2"}, exitcode.NoInput, "tokenizers are not downloaded by name"},
	} {
		tok, err := FromConfig(c.config)
		if err == nil || tok != nil || exitcode.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v with exit code %d, want %d", name, err, exitcode.CodeOf(err), c.code)
		}
	}
}

// Claim: without --tokenizer-type the files decide, as old command lines expect.
func TestTypeFromFiles(t *testing.T) {
	tok, err := FromConfig(Config{VocabSize: 7})
	if err != nil || tok.Name() != "NullTokenizer" || tok.EOD() != 6 {
		t.Errorf("%v, %v", tok, err)
	}
	vocab, merges := published(t)
	tok, err = FromConfig(Config{VocabFile: vocab, MergeFile: merges, VocabSize: 9})
	if err != nil || tok.Name() != "GPT2BPETokenizer" || tok.VocabSize() != 50257 {
		t.Errorf("%v, %v", tok, err)
	}
}

// FuzzGPT2RoundTrip: any UTF-8 text survives encoding and decoding, any other
// bytes are refused, and ids do not depend on what was encoded before.
func FuzzGPT2RoundTrip(f *testing.F) {
	for _, s := range []string{"", " ", "Hello  world's\n\n end", "<|endoftext|>a<|endof", "\xff", "é\u2028\u0085x'll 12½"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ids, err := embedded().Encode(text)
		if valid := utf8.ValidString(text); valid != (err == nil) {
			t.Fatalf("valid %v, error %v", valid, err)
		}
		if err != nil {
			return
		}
		if back := embedded().Decode(ids); back != text {
			t.Fatalf("decoded to %q", back)
		}
	})
}
