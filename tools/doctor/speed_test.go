package doctor

import (
	"strings"
	"testing"
)

// TestSpeedText: median and spread, and a word where the probes differ much.
func TestSpeedText(t *testing.T) {
	s := Speed{Uses: "kernels", Side: 128, Speed: map[string]float64{"f32": 100, "bf16": 200}, Low: map[string]float64{"f32": 90, "bf16": 190}, High: map[string]float64{"f32": 110, "bf16": 210}}
	if got, want := s.text(), "kernels; 100 GFLOP/s in f32 (90 to 110), 200 GFLOP/s in bf16 (190 to 210), median of 5 probes (128 x 128 matrices)"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	s.Low["bf16"] = 100
	if !strings.HasSuffix(s.text(), "other programs use this machine") {
		t.Error(s.text())
	}
}
