package datacase

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// cases is the golden cases.json: the shared one where this machine has it, else
// the subset in testdata.
func cases(t *testing.T) (path string, least int) {
	if s := os.Getenv("MONOTRON_SHARED"); s != "" {
		return filepath.Join(s, "golden/data/cases.json"), 68
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
		if p := filepath.Join(dir, "shared/golden/data/cases.json"); exists(p) {
			return p, 68
		}
	}
	return "testdata/cases.json", 35
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Claim: files, index arrays, cache files, samples, blends and sampler orders
// equal those that Megatron-LM made (golden data cases, every array by hash).
func TestGoldenCases(t *testing.T) {
	path, least := cases(t)
	var out strings.Builder
	passed, failed, err := Run(path, "", &out)
	if err != nil {
		t.Fatal(err)
	}
	if failed > 0 || passed < least {
		t.Errorf("%d passed, %d failed of %s\n%s", passed, failed, path, out.String())
	}
}
