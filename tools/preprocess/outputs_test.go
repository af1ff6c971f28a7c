package preprocess

import (
	"os"
	"strings"
	"testing"

	"monotron/internal/exitcode"
)

// Claim (docs/data.md): an output that would replace an input or a file of the tokenizer is refused, under
// whatever name it is given, and the file stays as it is.
func TestOutputOverInput(t *testing.T) {
	const line = `{"text": "a b c"}` + "\n"
	for _, c := range []struct{ input, flags string }{
		{"x_text_document.bin", "--input-format jsonl --tokenizer-type GPT2BPETokenizer"},
		{"x_text_document.idx", "--input-format jsonl --tokenizer-type GPT2BPETokenizer"},
		{"x_text_document.json", "--tokenizer-type GPT2BPETokenizer"},
		{"x_b_document.json", "--json-keys text b --on-bad-line skip --tokenizer-type GPT2BPETokenizer"},
		{"x_1_text_document.bin", "--input-format jsonl --partitions 2 --tokenizer-type GPT2BPETokenizer"},
		{"x_1of1_text_document.bin", "--input-format jsonl --shard 1/1 --tokenizer-type GPT2BPETokenizer"},
		{"x_text_sentence.json", "--split-sentences --tokenizer-type GPT2BPETokenizer"},
		{"x_val_document.bin", "--input-format text --text-split 0.5 --tokenizer-type GPT2BPETokenizer"},
		{"x_vocab.json", "--input-format text --tokenizer-type CharTokenizer"},
		{"x_text_document.bin", "--input-format tokens --output-format llmc --tokenizer-type GPT2BPETokenizer"},
		{"x_text_document.bin", "--input-format jsonl --dry-run --tokenizer-type GPT2BPETokenizer"},
	} {
		t.Chdir(t.TempDir())
		if err := os.WriteFile(c.input, []byte(line), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(c.input, "link"+c.input[strings.LastIndexByte(c.input, '.'):]); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{c.input, "./" + c.input, "link" + c.input[strings.LastIndexByte(c.input, '.'):]} {
			args := append([]string{"preprocess_data", "--input", name, "--output-prefix", "x"}, strings.Fields(c.flags)...)
			_, err := call(args...)
			if exitcode.CodeOf(err) != exitcode.Usage || !strings.Contains(err.Error(), "would replace the input") {
				t.Errorf("%q: %v", args, err)
			}
		}
		if text, err := os.ReadFile(c.input); err != nil || string(text) != line {
			t.Errorf("%s: now %q, %v", c.input, text, err)
		}
		if left, err := os.ReadDir("."); err != nil || len(left) != 2 {
			t.Errorf("%s: the folder has %v, %v", c.input, left, err)
		}
	}
}

// Claim (docs/data.md): the output of an earlier run with the same prefix is replaced, as by Megatron's tool.
func TestOutputOverEarlierOutput(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("in.jsonl", []byte(`{"text": "a b c"}`+"\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, prefix := range []string{"x", "x", "y"} {
		if _, err := call("preprocess_data", "--input", "in.jsonl", "--output-prefix", prefix, "--tokenizer-type", "GPT2BPETokenizer"); err != nil {
			t.Fatal(err)
		}
	}
	if hash(t, "x_text_document.bin") != hash(t, "y_text_document.bin") || hash(t, "x_text_document.idx") != hash(t, "y_text_document.idx") {
		t.Error("the second run's files differ from those of a first")
	}
}

// Claim: a flag of another version of Megatron-LM's tool is an error that says what to use instead.
func TestFlagsOfMegatron(t *testing.T) {
	for _, name := range []string{"preprocess_data", "preprocess_data_fast"} {
		_, err := call(name, "--input", "x", "--chunk_size", "25", "--vocab", "v")
		for _, says := range []string{"--chunk-size of Megatron: leave the flag out", "--vocab of Megatron: use --vocab-file"} {
			if exitcode.CodeOf(err) != exitcode.Usage || !strings.Contains(err.Error(), says) {
				t.Errorf("%v, want %q", err, says)
			}
		}
	}
}

// Claim: a prefix whose folder is a file, a loop of links or missing is an error that names the prefix as it was given, not a hidden file.
func TestOutputFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFile(t, "in.jsonl", []byte(`{"text": "a"}`+"\n"))
	if err := os.Symlink("loop", "loop"); err != nil {
		t.Fatal(err)
	}
	for prefix, says := range map[string]string{"loop/x": "--output-prefix loop/x: the folder loop cannot be used: too many levels", "in.jsonl/x": "--output-prefix in.jsonl/x: in.jsonl is a file", "none/x": "the folder none does not exist"} {
		_, err := call("preprocess_data", "--input", "in.jsonl", "--output-prefix", prefix, "--tokenizer-type", "GPT2BPETokenizer")
		if exitcode.CodeOf(err) != exitcode.IO || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", prefix, err)
		}
	}
	// A folder stands where the unfinished file must be.
	if err := os.Mkdir(".x_text_document.bin.partial", 0o777); err != nil {
		t.Fatal(err)
	}
	_, err := call("preprocess_data", "--input", "in.jsonl", "--output-prefix", "x", "--tokenizer-type", "GPT2BPETokenizer")
	if exitcode.CodeOf(err) != exitcode.IO || !strings.Contains(err.Error(), "x_text_document.bin cannot be written: ") || strings.Contains(err.Error(), ".partial") {
		t.Errorf("%v", err)
	}
}

// Claim (docs/tokenizers.md): flags of another type of tokenizer are named in a note, as scripts give them; a model that
// would not be read is refused.
func TestTokenizerFlagsOfAnotherType(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFile(t, "in.jsonl", []byte(`{"text": "1 2"}`+"\n"))
	words := []string{"preprocess_data", "--input", "in.jsonl", "--output-prefix", "x", "--tokenizer-type"}
	said, err := call(append(words, "GPT2BPETokenizer", "--vocab-size", "3", "--tiktoken-pattern", "v1")...)
	for _, says := range []string{"note: --vocab-size has no effect with --tokenizer-type GPT2BPETokenizer\n", "note: --tiktoken-pattern has no effect"} {
		if err != nil || !strings.Contains(said, says) {
			t.Errorf("%v, said %q", err, said)
		}
	}
	if said, err := call(append(words, "NullTokenizer", "--vocab-size", "3", "--null-tokenizer-eod-id", "2")...); err != nil || strings.Contains(said, "no effect") {
		t.Errorf("%v, said %q", err, said)
	}
	_, err = call(append(words, "GPT2BPETokenizer", "--tokenizer-model", "none")...)
	if exitcode.CodeOf(err) != exitcode.Usage || !strings.Contains(err.Error(), "--tokenizer-model none would have no effect") {
		t.Error(err)
	}
}
