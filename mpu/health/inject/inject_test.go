package inject

import (
	"strings"
	"testing"

	"monotron/internal/exitcode"
	"monotron/mpu/health"
)

// Claim (docs/failures.md): faults are read from --inject, several of them, with the
// usual values where nothing is said.
func TestParse(t *testing.T) {
	got, err := Parse([]string{"kill:rank=3:step=7:phase=backward,exit:code=9", "sleep:rank=1:seconds=0.5:phase=data", "slow:ms=20", "corrupt:step=4", "nan:layer=2", "mismatch:what=order"})
	if err != nil {
		t.Fatal(err)
	}
	want := []Fault{
		{Kind: Kill, Rank: 3, Step: 7, Phase: health.Backward}, {Kind: Exit, Phase: health.Forward, Code: 9}, {Kind: Sleep, Rank: 1, Phase: health.Data, Seconds: 0.5},
		{Kind: Slow, Phase: health.Forward, Seconds: 0.02}, {Kind: Corrupt, Step: 4, Phase: health.Save}, {Kind: NaN, Phase: health.Forward, Layer: 2}, {Kind: Mismatch, Phase: health.Forward, What: "order"},
	}
	for i, w := range want {
		g := got[i]
		if w.Code == 0 {
			w.Code = 1
		}
		if w.Seconds == 0 {
			w.Seconds = 3600
		}
		if w.What == "" {
			w.What = "size"
		}
		if g != w {
			t.Errorf("fault %d is %+v, want %+v", i, g, w)
		}
	}
}

// Claim: text that is not a fault is one error that says what can be written.
func TestParseProblems(t *testing.T) {
	for text, want := range map[string]string{
		"": `"" is not a fault; choose kill`, "crash:rank=1": `"crash" is not a fault; choose kill`, "kill:rank=x": `"x" is not a valid value of rank`, "kill:rank=-1": "is not a valid value of rank", "kill:ms=3": `"ms" is not a key of kill; its keys are rank, step, phase`,
		"sleep:phase=lunch": `"lunch" is not a valid value of phase`, "mismatch:what=colour": "is not a valid value of what", "exit:code=999": `"999" is not a valid value of code`, "kill,": `"" is not a fault`, "kill:step=NaN": `"NaN" is not a valid value of step`,
	} {
		if _, err := Parse([]string{text}); exitcode.CodeOf(err) != exitcode.Usage || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
