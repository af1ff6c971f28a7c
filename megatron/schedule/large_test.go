package schedule

import (
	"strings"
	"testing"

	"monotron/internal/exitcode"
)

// Claim: a step whose lists of actions would not fit in memory is refused before one is
// made; the largest steps that people take are not.
func TestStepOfTooManyActions(t *testing.T) {
	for _, c := range []Config{{Stages: 1, Micros: 2_000_000_000}, {Stages: 2, Micros: 200_000_000}, {Stages: 1 << 20, Chunks: 1 << 20, Micros: 1 << 20}} {
		if _, _, err := c.All(); exitcode.CodeOf(err) != exitcode.Usage || !strings.Contains(err.Error(), "--global-batch-size") {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if err := (Config{Stages: 64, Chunks: 4, Micros: 16384}).Check(); err != nil {
		t.Error(err)
	}
}
