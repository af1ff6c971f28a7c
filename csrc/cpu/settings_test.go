//go:build cgo

package cpu_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"monotron/csrc/cpu"
	"monotron/internal/exitcode"
)

// Claim (isa.c, onednn.c): MONOTRON_ISA keeps kernels, and oneDNN where it is found, from using more
// than it names.
func TestInstructionSetOfSetting(t *testing.T) {
	library := map[string]string{"portable": "with SSE4.1 at most", "avx2": "with AVX2 at most"}
	for setting, sign := range map[string]string{"portable": "portable vectors", "avx2": "AVX2"} {
		if setting == "avx2" && !strings.Contains(open(t).Describe(), "AVX") {
			continue
		}
		c := exec.Command(os.Args[0], "-test.run=^TestSaysWhatItUses$", "-test.count=1", "-test.v")
		c.Env = append(os.Environ(), "MONOTRON_ISA="+setting)
		if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), "C kernels for "+sign) {
			t.Errorf("MONOTRON_ISA=%s: %v\n%s", setting, err, out)
		} else if strings.Contains(string(out), "oneDNN") && !strings.Contains(string(out), library[setting]) {
			t.Errorf("MONOTRON_ISA=%s leaves oneDNN as it is:\n%s", setting, out)
		}
	}
}

// Claim: a value that no kernel would obey is refused, by name.
func TestSettingsUnknown(t *testing.T) {
	for _, setting := range []string{"MONOTRON_ISA", "MONOTRON_AMX", "MONOTRON_ONEDNN"} {
		t.Run(setting, func(t *testing.T) {
			t.Setenv(setting, "nope")
			if _, err := cpu.Open(); exitcode.CodeOf(err) != exitcode.Usage || !strings.Contains(err.Error(), setting+"=nope is not a valid setting; set the variable to ") {
				t.Errorf("%v", err)
			}
		})
	}
}

// Claim: a device says what does its work.
func TestSaysWhatItUses(t *testing.T) {
	text := open(t).Describe()
	if !strings.Contains(text, "C kernels for ") {
		t.Errorf("%q", text)
	}
	t.Log(text)
}

// Claim: matmul and attention agree with the oracle also where there is no
// oneDNN and no AMX. Both are chosen once a process, so the table runs in others; not
// where this machine has nothing to switch off, which TestValues and TestSameBits run.
func TestValuesOfSettings(t *testing.T) {
	var off []string
	for setting, sign := range map[string]string{"MONOTRON_AMX=off": "AMX", "MONOTRON_ONEDNN=off": "oneDNN"} {
		if strings.Contains(open(t).Describe(), sign) {
			off = append(off, setting)
		}
	}
	if len(off) == 0 {
		t.Skip("neither oneDNN nor AMX here: nothing to do without")
	}
	runs := [][]string{off}
	if slices.Contains(off, "MONOTRON_ONEDNN=off") { // else only what it is faster at is the library's
		runs = append(runs, []string{"MONOTRON_ONEDNN=all"})
	}
	if len(off) > 1 {
		runs = append(runs, off[:1], off[1:])
	}
	for _, settings := range runs {
		c := exec.Command(os.Args[0], "-test.run=^(TestValues|TestSameBits)$/^(matmul|attention_forward|attention_backward)$", "-test.count=1")
		c.Env = append(os.Environ(), settings...)
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%v: %v\n%s", settings, err, out)
		}
	}
}
