package model

import (
	"strings"
	"testing"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/megatron/spec"
)

// Claim: what a device's kernels lack is refused by the flag's name before anything is
// computed; without a device, for lists of parameters, nothing is.
func TestLacks(t *testing.T) {
	gpu := &device.Device{Name: "cuda"}
	for flag, m := range map[string]*spec.Model{"--attention-softcap": {ScoreCap: 2}, "--alibi-by-key": {AlibiTable: true}} {
		if err := lacks(gpu, m); err == nil || !strings.HasPrefix(err.Error(), flag) || exitcode.CodeOf(err) != exitcode.Usage {
			t.Errorf("%s: %v", flag, err)
		}
		if err := lacks(nil, m); err != nil {
			t.Errorf("%s without a device: %v", flag, err)
		}
	}
	if err := lacks(nil, &spec.Model{RopeRule: `{"rope_type":"spiral"}`}); err == nil {
		t.Error("a rule that nobody knows is taken")
	}
}
