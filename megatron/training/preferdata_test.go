package training

import (
	"strings"
	"testing"

	"monotron/dataset/sft"
	"monotron/megatron/preference"
)

// Claim: weights of KTO that leave good answers 1 to 4/3 times as heavy as bad ones, all together,
// are not remarked on; others are, with those that would.
func TestUnbalanced(t *testing.T) {
	rows := func(good, bad int) *sft.Preferences {
		set := &sft.Preferences{}
		for i := range good + bad {
			set.Rows = append(set.Rows, sft.Preference{Good: i < good})
		}
		return set
	}
	for _, c := range []struct {
		good, bad     int
		goodBy, badBy float64
		says          string
	}{
		{10, 10, 1, 1, ""}, {10, 10, 3, 1, ""}, {30, 0, 1, 1, ""},
		{30, 10, 1, 1, "--kto-desirable-weight 0.33 to 0.44, or --kto-undesirable-weight 2.25 to 3.00"},
		{30, 10, 1, 3, ""}, {30, 10, 0.4, 1, ""}, {30, 10, 0.5, 1, "--kto-desirable-weight 0.33 to 0.44"}, {10, 30, 1, 1, "--kto-desirable-weight 3.00 to 4.00"},
	} {
		set := rows(c.good, c.bad)
		set.Rule = sft.RuleKTO
		if got := unbalanced(set, &preference.Options{Good: c.goodBy, Bad: c.badBy}); (got == "") != (c.says == "") || !strings.Contains(got, c.says) {
			t.Errorf("%+v: %q", c, got)
		}
	}
}
