package pretrain

import (
	"slices"
	"strings"
	"testing"
)

// TestChoices: values of a flag with a fixed choice of them, whether or not one has begun; none of other flags.
func TestChoices(t *testing.T) {
	for line, want := range map[string]string{
		"pretrain_gpt --log-format":             "text json",
		"pretrain_gpt --lr 1 --log-format js":   "text json",
		"pretrain_gpt --log-format text --lr":   "",
		"pretrain_gpt --log-format text --lr 1": "",
		"pretrain_gpt --lo":                     "",
		"pretrain_gpt":                          "",
	} {
		if got := choices(strings.Fields(line)); !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%s: %v, want %s", line, got, want)
		}
	}
}
