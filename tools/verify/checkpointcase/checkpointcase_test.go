package checkpointcase

import (
	"os"
	"path/filepath"
	"testing"

	"monotron/csrc/device"
	"monotron/csrc/ref"
)

// shared is golden/checkpoint, or the test is skipped.
func shared(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("MONOTRON_SHARED")
	for at, up := ".", 0; dir == "" && up < 6; at, up = filepath.Join(at, ".."), up+1 {
		if st, err := os.Stat(filepath.Join(at, "..", "shared", "golden")); err == nil && st.IsDir() {
			dir = filepath.Join(at, "..", "shared")
		}
	}
	dir = filepath.Join(dir, "golden", "checkpoint")
	if _, err := os.Stat(dir); err != nil {
		t.Skip("no golden cases beside the repository; set MONOTRON_SHARED")
	}
	return dir
}

// Every case of golden/checkpoint is met: files, settings, moments, logits
// within the case's tolerance.
func TestGoldenCases(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(shared(t), "*", "case.json"))
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, path := range paths {
		dir := filepath.Dir(path)
		if !Is(dir) {
			continue
		}
		ran++
		t.Run(filepath.Base(dir), func(t *testing.T) {
			r, err := Run(dir, func() (*device.Device, error) { return ref.Open(), nil })
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range r.Checks {
				if !c.OK {
					t.Errorf("%s %s: %g over %g %s", c.Group, c.Name, c.Error, c.Tolerance, c.Note)
				}
			}
		})
	}
	if ran < 30 {
		t.Errorf("only %d cases", ran)
	}
}
