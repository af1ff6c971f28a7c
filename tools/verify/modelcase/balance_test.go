package modelcase

import (
	"testing"

	"monotron/megatron/engine"
	"monotron/megatron/spec"
)

// Claim: a number of experts that is off is reported with the step's nearest tie, one that is
// right is not.
func TestWhatIsOffReportsTheNearestTie(t *testing.T) {
	gap := 1.25e-5
	r := &run{report: &Report{}}
	want := mixturePoint{Tokens: map[string][]float64{"0": {3, 1}, "1": {2, 2}}, Gap: &gap}
	step := engine.Result{Mixtures: &engine.Mixtures{Tokens: [][]float64{{3, 1}, {1, 3}}}}
	if err := r.compareMixtures(&spec.Model{}, "iteration 7 ", want, step, nil); err != nil {
		t.Fatal(err)
	}
	got := r.report.Checks
	const words = "got [1 3], want [2 2]; nearest tie of a choice in this step: 1.25e-05"
	if len(got) != 2 || !got[0].OK || got[0].Note != "" || got[1].OK || got[1].Note != words {
		t.Errorf("%+v", got)
	}
}
