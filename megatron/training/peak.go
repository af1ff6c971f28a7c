package training

import (
	"time"

	"monotron/csrc/device"
)

// MeasurePeak finds what d multiplies in a second, in the run's precision, for
// the MFU of --log-extras: products of large square matrices, 0.2 s
// of them. `monotron bench` looks longer, and at the model's own shapes.
func (j *Job) MeasurePeak(d *device.Device) error {
	side := int64(1024)
	if d.Name == "ref" {
		side = 128 // plain Go: 1024 would take seconds
	}
	dtype := valueType(j.Config.Precision)
	speed, err := device.MatmulSpeed(d, dtype, device.Product{M: side, N: side, K: side}, 200*time.Millisecond)
	if err != nil {
		return err
	}
	j.peak = speed.Sustained
	j.console.note("peak for MFU: %.0f GFLOP/s (products of %d x %d in %s)", j.peak/1e9, side, side, dtype)
	return nil
}
