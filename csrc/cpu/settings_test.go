//go:build cgo

package cpu_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

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
