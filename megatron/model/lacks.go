package model

import (
	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/megatron/spec"
)

// lacks names the first part of a model that cannot be computed on a device, or that does
// not fit the rest of the model.
func lacks(d *device.Device, m *spec.Model) error {
	bad := func(format string, args ...any) error { return exitcode.Errorf(exitcode.Usage, format, args...) }
	if d != nil && d.IsGPU() { // lists of parameters need no device
		switch {
		case m.ScoreCap > 0:
			return bad("--attention-softcap: the attention kernels of --device cuda have no cap; use --device cpu")
		case m.AlibiTable:
			return bad("--alibi-by-key: the attention kernels of --device cuda add slopes only; use --device cpu")
		}
	}
	for _, text := range []string{m.RopeRule, m.WindowRope} {
		if text == "" {
			continue
		}
		if _, err := spec.ParseRopeRule(text, m.RotaryDims()); err != nil {
			return bad("--rope-parameters %s: %w", text, err)
		}
	}
	return nil
}
