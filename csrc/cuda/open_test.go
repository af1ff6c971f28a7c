package cuda_test

import (
	"strings"
	"testing"

	"monotron/csrc/cuda"
)

// Claim: without a library the error is one line that says what is missing and
// what works.
func TestOpenSaysWhatIsMissing(t *testing.T) {
	for _, path := range []string{"", "/no/such/libmt_cuda.so"} {
		t.Setenv(cuda.LibraryVariable, path)
		_, err := cuda.Open(0)
		if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "works") {
			t.Errorf("%q: %v", path, err)
		}
	}
}
