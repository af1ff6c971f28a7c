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
		if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "works") {
			t.Errorf("%q: %v", path, err)
		}
	}
}

// Claim: streams get as many queues to the GPU as there can be before CUDA starts, unless
// somebody has chosen.
func TestOpenAsksForQueues(t *testing.T) {
	t.Setenv(cuda.LibraryVariable, os.DevNull) // which is no library: CUDA does not start
	for given, want := range map[string]string{"": "32", "1": "1"} {
		t.Setenv("CUDA_DEVICE_MAX_CONNECTIONS", given)
		if _, err := cuda.Open(0); err == nil {
			t.Fatal("/dev/null was opened as a library")
		}
		if got := os.Getenv("CUDA_DEVICE_MAX_CONNECTIONS"); got != want {
			t.Errorf("%q became %q, want %q", given, got, want)
		}
	}
}
