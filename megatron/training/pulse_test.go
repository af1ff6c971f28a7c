package training

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"monotron/internal/logging"
	"monotron/mpu/health"
)

// Claim: a step is reported when it takes 10 s, then at growing intervals, with phase and
// micro-batch; one that ends before is not, and nothing is logged after its end.
func TestPulse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := &pulse{notes: logging.New(&out), after: longStep}
		p.begin(6)
		time.Sleep(9 * time.Second)
		p.end()
		time.Sleep(time.Minute)
		p.begin(7)
		p.expect(4, 1)
		for range 3 {
			p.enter(health.Forward, 7)
			p.enter(health.Backward, 7)
		}
		time.Sleep(41 * time.Second)
		p.end()
		time.Sleep(time.Hour)
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 3 {
			t.Fatalf("%q", lines)
		}
		for i, seconds := range []string{"(10 s)", "(20 s)", "(40 s)"} {
			if !strings.HasPrefix(lines[i], "step 7 is in the backward pass, micro-batch 3 of 4, since ") || !strings.HasSuffix(lines[i], seconds) {
				t.Errorf("%q, want %s", lines[i], seconds)
			}
		}
	})
	var none *pulse
	none.begin(1)
	none.expect(1, 1)
	none.end()
}
