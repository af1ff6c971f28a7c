package checkpointcase

import (
	"path/filepath"
	"testing"

	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/internal/golden"
)

// shared is the folder of checkpoint cases.
func shared(t *testing.T) string {
	t.Helper()
	return golden.Dir(t, "checkpoint")
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
