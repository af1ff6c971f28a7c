//go:build cgo

package cpu_test

import (
	"os"
	"os/exec"
	"testing"
)

// Claim: matmul and attention agree with the oracle also where there is no
// oneDNN and no AMX. Both are chosen once a process, so the table runs in others.
func TestValuesOfSettings(t *testing.T) {
	for _, settings := range [][]string{{"MONOTRON_AMX=off"}, {"MONOTRON_ONEDNN=off"}, {"MONOTRON_AMX=off", "MONOTRON_ONEDNN=off"}} {
		c := exec.Command(os.Args[0], "-test.run=^(TestValues|TestSameBits)$/^(matmul|attention_forward|attention_backward)$", "-test.count=1")
		c.Env = append(os.Environ(), settings...)
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%v: %v\n%s", settings, err, out)
		}
	}
}
