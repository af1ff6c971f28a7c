package arguments

import (
	"fmt"
	"strings"
	"testing"

	"monotron/megatron/arguments/table"
	"monotron/megatron/optimizer"
)

// Claim (docs/developing.md): a curve that a flag names is one of its own: no choice falls through to another's.
func TestEveryCurveIsItsOwn(t *testing.T) {
	for flag, with := range map[string]string{
		"lr-decay-style": "--lr-wsd-decay-iters 40 --lr-decay-power 2 --lr-decay-cycles 2 ", "lr-wsd-decay-style": "--lr-decay-style WSD --lr-wsd-decay-iters 40 ", "weight-decay-incr-style": "--start-weight-decay 0.1 --end-weight-decay 0.3 ",
	} {
		seen := map[string]string{}
		for _, choice := range table.Find(flag).Choices {
			with := with
			if choice == "constant" && strings.HasPrefix(flag, "weight") {
				with = "" // start and end are those of a curve
			}
			c, _, err := ParseWith(everything, append(baseline(), strings.Fields(with+"--lr-warmup-iters 10 --min-lr 1e-5 --"+flag+" "+choice)...))
			if err != nil {
				t.Fatal(flag, choice, err)
			}
			schedule, err := c.Optimizer.Schedule(100, 0, 1)
			if err != nil {
				t.Errorf("--%s %s: %v", flag, choice, err)
				continue
			}
			p, curve := optimizer.NewParamScheduler(schedule), ""
			for range 100 {
				p.Step(1)
				curve += fmt.Sprintf("%.6g %.6g ", p.LR(), p.WeightDecay())
			}
			if other, same := seen[curve]; same {
				t.Errorf("--%s %s is the curve of %s", flag, choice, other)
			}
			seen[curve] = choice
		}
		if len(seen) < 3 {
			t.Errorf("--%s has %d curves", flag, len(seen))
		}
	}
	c, _, err := ParseWith(everything, baseline())
	if err != nil {
		t.Fatal(err)
	}
	c.Optimizer.DecayStyle = "new"
	if _, err := c.Optimizer.Schedule(100, 0, 1); err == nil || !strings.Contains(err.Error(), `--lr-decay-style must be WSD, constant`) {
		t.Errorf("a curve that the table has not: %v", err)
	}
}
