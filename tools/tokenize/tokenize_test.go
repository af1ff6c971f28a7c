package tokenize

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"monotron/internal/exitcode"
)

// call runs tokenize on a file with the given text.
func call(t *testing.T, text string, flags ...string) (string, error) {
	path := filepath.Join(t.TempDir(), "x.txt")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	app := &cli.App{Commands: []*cli.Command{Command()}, Writer: &out, ErrWriter: &out, ExitErrHandler: func(*cli.Context, error) {}}
	err := app.RunContext(context.Background(), append([]string{"monotron", "tokenize", "--input", path, "--tokenizer-type", "GPT2BPETokenizer"}, flags...))
	return out.String(), err
}

// Claim: ids as tiktoken gives them for these texts; decoding undoes it; a list
// of strings is one line.
func TestTokenize(t *testing.T) {
	for _, c := range []struct {
		in, want string
		flags    []string
	}{
		{"Hello world\n\n", "[15496, 995]\n[]\n", nil},
		{`{"text": "Hello world"}` + "\r\n" + `{"text": ["Hello", " world"]}`, "[15496, 995]\n[15496, 995]\n", []string{"--json-key", "text"}},
		{"Hello world", "2\n", []string{"--count"}},
		{"[15496, 995, 198]\n[]\n", "\"Hello world\\n\"\n\"\"\n", []string{"--decode"}},
	} {
		if got, err := call(t, c.in, c.flags...); err != nil || got != c.want {
			t.Errorf("%q: %q, %v; want %q", c.in, got, err, c.want)
		}
	}
}

// Claim: output is in the order of the input for any number of workers.
func TestOrder(t *testing.T) {
	var in strings.Builder
	for i := range 40000 {
		fmt.Fprintf(&in, "[%d]\n", i)
	}
	one, err := call(t, in.String(), "--workers", "1")
	if err != nil {
		t.Fatal(err)
	}
	if many, err := call(t, in.String(), "--workers", "7"); err != nil || many != one || strings.Count(one, "\n") != 40000 {
		t.Errorf("7 workers give other output than one: %v", err)
	}
}

// Claim: a bad line is named by file and number, after the output of those before it.
func TestBadLine(t *testing.T) {
	for text, flags := range map[string][]string{
		"{\"text\": \"a\"}\n{\"text\": 5}\n": {"--json-key", "text"},
		"a\n\xff\n":                          nil,
		"[64]\nx\n":                          {"--decode"},
		"[64]\n[50257]\n":                    {"--decode"},
	} {
		out, err := call(t, text, flags...)
		if exitcode.CodeOf(err) != exitcode.BadData || !strings.Contains(err.Error(), "x.txt:2:") || strings.Count(out, "\n") != 1 {
			t.Errorf("%q: %q, %v", text, out, err)
		}
	}
	if _, err := call(t, "", "--decode", "--count"); exitcode.CodeOf(err) != exitcode.Usage {
		t.Errorf("%v", err)
	}
}
