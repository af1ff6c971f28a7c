package command

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monotron/internal/exitcode"
)

// Claim (docs/data.md): what files hold follows from their names alike in every command; folders
// and globs are their files in the order of names; a mixture is refused.
func TestInputs(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"a.jsonl", "b.txt", "c.txt.gz", "d", "e.json.zst", "p.idx", "p.bin", "books/2.txt", "books/1.md", "books/sub/3.txt", "books/.hidden.txt", "books/image.png", "books/sub/a.pdf", "empty/image.png", "q.idx", "q/cache"} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct{ words, format, want, kind string }{
		{"a.jsonl e.json.zst", "", "a.jsonl e.json.zst", JSONLines},
		{"b.txt c.txt.gz d", "", "b.txt c.txt.gz d", Text},
		{"[bc].txt*", "", "b.txt c.txt.gz", Text},
		{"d", "", "d", ""},
		{"-", "", "-", ""},
		{"d", Text, "d", Text},
		{"books", "", "books/1.md books/2.txt books/sub/3.txt", Text},
		{"a.jsonl b.txt", Text, "a.jsonl b.txt", Text},
		{"books", Text, "books/1.md books/2.txt books/image.png books/sub/3.txt books/sub/a.pdf", Text},
		{"p", Tokens, "p", Tokens},
		{"q", Tokens, "q", Tokens},
		{"p.bin", "", "p.bin", Tokens},
	} {
		notes := ""
		files, kind, err := Inputs(strings.Fields(test.words), test.format, func(format string, args ...any) { notes += fmt.Sprintf(format, args...) })
		if left := "--input books: 2 files are left out, because their names do not show that they contain text or JSON lines (1 .pdf, 1 .png); to read such a file as well, name it"; (test.words == "books" && test.format == "") != (notes == left) {
			t.Errorf("%s (%s): note %q", test.words, test.format, notes)
		}
		if got := strings.Join(files, " "); err != nil || got != test.want || kind != test.kind {
			t.Errorf("%s (%s): %s, %s, %v; want %s, %s", test.words, test.format, got, kind, err, test.want, test.kind)
		}
	}
	for _, test := range []struct {
		words, want string
		code        exitcode.Code
	}{
		{"a.jsonl b.txt", "the names show that a.jsonl contains jsonl, but b.txt contains text; give --input-format", exitcode.Usage},
		{"nothing.txt", "the file does not exist", exitcode.NoInput},
		{"empty", "no file whose name shows", exitcode.NoInput},
		{"[", "syntax error in pattern", exitcode.Usage},
		{"b*", "books is a folder", exitcode.NoInput},
	} {
		if files, _, err := Inputs(strings.Fields(test.words), "", nil); exitcode.CodeOf(err) != test.code || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, %v; want %q", test.words, files, err, test.want)
		}
	}
}
