package argv

import (
	"testing"

	"monotron/internal/exitcode"
)

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
