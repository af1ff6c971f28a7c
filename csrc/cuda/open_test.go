//go:build cgo

package cuda_test

import (
	"os"
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
		if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), " use --device ") {
			t.Errorf("%q: %v", path, err)
		}
	}
}

// Claim: before CUDA starts it is asked for as many queues to the GPU as there can be, and to
// load every kernel at once, unless somebody has chosen.
func TestOpenAsksBeforeCUDAStarts(t *testing.T) {
	t.Setenv(cuda.LibraryVariable, os.DevNull) // which is not a library: CUDA does not start
	for name, cases := range map[string]map[string]string{
		"CUDA_DEVICE_MAX_CONNECTIONS": {"": "32", "1": "1"},
		"CUDA_MODULE_LOADING":         {"": "EAGER", "LAZY": "LAZY"},
	} {
		for given, want := range cases {
			t.Setenv(name, given)
			if _, err := cuda.Open(0); err == nil {
				t.Fatal("/dev/null was opened as a library")
			}
			if got := os.Getenv(name); got != want {
				t.Errorf("%s: %q became %q, want %q", name, given, got, want)
			}
		}
	}
}
