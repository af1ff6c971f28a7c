package argv

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"monotron/internal/exitcode"
)

// Claim: a shell reads a quoted line as the words that it is made of.
func TestQuoted(t *testing.T) {
	words := []string{"", "a", "my model/x", "it's", "a;b", "$HOME", "~/x", "*.bin", "-x=1", "type:transformer|embedding", "größe", "a\nb", `b\c`}
	line := Line(words...)
	out, err := exec.Command("sh", "-c", "printf '%s\\0' "+line).Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"); !slices.Equal(got, words) {
		t.Errorf("a shell reads %s as %q", line, got)
	}
	if plain := Line("serve", "--load", "tuned/model", "--lr=1e-3", "-x"); plain != "serve --load tuned/model --lr=1e-3 -x" {
		t.Error(plain)
	}
}

// Claim: a wrong choice is answered by one sentence with all choices and the value.
func TestWrongChoice(t *testing.T) {
	for _, c := range []struct {
		given string
		words []string
		want  string
	}{
		{"f8", []string{"f32", "bf16", "fp16"}, "--dtype must be f32, bf16 or fp16, not f8"},
		{"x", []string{"a", "b"}, "--dtype must be a or b, not x"},
		{"", []string{"a"}, `--dtype must be a, not ""`},
		{"a b", []string{"a"}, `--dtype must be a, not "a b"`},
	} {
		if err := WrongChoice("dtype", c.given, c.words...); err.Error() != c.want || exitcode.CodeOf(err) != exitcode.Usage {
			t.Errorf("%q: %v, want %s", c.given, err, c.want)
		}
	}
}
