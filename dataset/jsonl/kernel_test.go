package jsonl

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Claim: kernel.c reads strings as the Go path does, right ones and wrong ones
// alike, wherever their escapes lie and however the line ends.
func TestKernelEqualsGo(t *testing.T) {
	if !kernelUsable {
		t.Skip("no kernel on this machine")
	}
	rng := rand.New(rand.NewPCG(1, 2))
	parts := []string{"plain text of some length, ", `\n`, `\t`, `\"`, `\\`, `\/`, `\u00e9`, `\u4f60`, `\ud83d\ude00`, `\u000A`, `\u0000`, "é你😀", "x", `\b\f\r`}
	wrong := []string{`\ud800`, `\ude00`, `\ud83d\u0041`, `\ud83dx`, `\x`, `\u12g4`, `\u12`, "\x1f", "\x00", `\`, `"`, `",`}
	refused := 0
	for range 50000 {
		text := ""
		for range rng.IntN(30) {
			text += parts[rng.IntN(len(parts))]
		}
		if rng.IntN(3) == 0 {
			text += wrong[rng.IntN(len(wrong))] + parts[rng.IntN(len(parts))]
		}
		line := []byte(`{"a": ["` + text + `", "` + text + `"], "text": "` + text + `"}`)
		line = line[:len(line)-rng.IntN(2)*rng.IntN(len(line))]
		c, plain := NewParser("text", "a"), NewParser("text", "a")
		plain.inC = false
		err, want := c.Parse(line), plain.Parse(line)
		if (err == nil) != (want == nil) || err != nil && err.Error() != want.Error() {
			t.Fatalf("%q: %v, want %v", line, err, want)
		}
		if err != nil {
			refused++
			continue
		}
		for k := range 2 {
			got, err := c.Strings(k)
			wanted, err2 := plain.Strings(k)
			if !slices.Equal(got, wanted) || (err == nil) != (err2 == nil) {
				t.Fatalf("%q, key %d: %q, %v, want %q, %v", line, k, got, err, wanted, err2)
			}
		}
	}
	if refused < 1000 || refused > 40000 {
		t.Errorf("%d of 50000 lines were refused", refused)
	}
}
