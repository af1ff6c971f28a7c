package health

import (
	"testing"
	"time"
)

// Claim: where a rank waits for its device, used processors do not count as work.
func TestSpinningIsNotWork(t *testing.T) {
	var a activity
	a.busy(false)
	for end := time.Now().Add(200 * time.Millisecond); time.Now().Before(end); {
	}
	if a.busy(true) {
		t.Skip("something moves bytes here")
	}
	for end := time.Now().Add(200 * time.Millisecond); time.Now().Before(end); {
	}
	if !a.busy(false) {
		t.Error("a processor that is used without a device is no work")
	}
}
