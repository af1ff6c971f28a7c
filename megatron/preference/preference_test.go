package preference

import (
	"math"
	"path/filepath"
	"testing"

	"monotron/internal/golden"
)

// of are the two numbers of a pair in golden/dpo.
type of struct{ Chosen, Rejected float64 }

type goldenRow struct {
	ChosenFrom       int `json:"chosen_from"`
	RejectedFrom     int `json:"rejected_from"`
	Chosen, Rejected []int
	Dropped          bool
	Policy           of `json:"policy_logps"`
	Reference        of `json:"reference_logps"`
	Losses           map[string]float64
}

// pair are the answers of a row.
func (r *goldenRow) pair() (chosen, rejected Answer) {
	answer := func(policy, reference float64, ids, from int) Answer {
		return Answer{Policy: policy, Reference: reference, Predicted: float64(ids - max(1, from)), Tokens: float64(ids - from)}
	}
	return answer(r.Policy.Chosen, r.Reference.Chosen, len(r.Chosen), r.ChosenFrom), answer(r.Policy.Rejected, r.Reference.Rejected, len(r.Rejected), r.RejectedFrom)
}

type method struct {
	Loss      string
	Beta      float64
	Smoothing float64 `json:"label_smoothing"`
	Gamma     float64
	Good      float64 `json:"desirable_weight"`
	Bad       float64 `json:"undesirable_weight"`
}

func (m *method) loss() (*Loss, *Options) {
	o := &Options{Beta: m.Beta, LabelSmoothing: m.Smoothing, Gamma: m.Gamma, Good: m.Good, Bad: m.Bad}
	switch m.Loss {
	case "orpo", "simpo", "kto":
		return Of(m.Loss, ""), o
	case "conservative":
		return Of(DPO, "sigmoid"), o
	}
	return Of(DPO, m.Loss), o
}

// Claim (golden/dpo: float64, TRL 1.16): the loss of each row by each method, from its
// log-probabilities.
func TestLossesOfTRL(t *testing.T) {
	var c struct {
		Methods map[string]method
		Kinds   map[string]struct {
			DPO  []goldenRow `json:"rows_of_dpo"`
			ORPO []goldenRow `json:"rows_of_orpo_and_simpo"`
		}
	}
	golden.ReadJSON(t, filepath.Join(golden.Dir(t, "dpo"), "case.json"), &c)
	seen := map[string]int{}
	for kind, k := range c.Kinds {
		for _, rows := range [][]goldenRow{k.DPO, k.ORPO} {
			for i, r := range rows {
				for name, want := range r.Losses {
					m := c.Methods[name]
					loss, o := m.loss()
					chosen, rejected := r.pair()
					if got, _, _ := loss.Pair(o, chosen, rejected); !(math.Abs(got-want) < 1e-12*(1+math.Abs(want))) {
						t.Errorf("%s row %d %s: %.15g, want %.15g", kind, i, name, got, want)
					}
					seen[name]++
				}
			}
		}
	}
	for _, name := range []string{"sigmoid", "robust", "conservative", "ipo", "hinge", "orpo", "simpo"} {
		if seen[name] < 30 {
			t.Errorf("%d rows of %s", seen[name], name)
		}
	}
}

// Claim: KTO's losses and slopes of an answer, worked by hand.
func TestKTO(t *testing.T) {
	o := &Options{Beta: 0.3, Good: 1.33, Bad: 0.8}
	a, kl := Answer{Policy: -10, Reference: -12}, 0.5
	for good, want := range map[bool][2]float64{ // x = 0.3·(2 − 0.5) = 0.45; σ(0.45) = 0.610639
		true:  {1.33 * 0.389361, -1.33 * 0.3 * 0.610639 * 0.389361},
		false: {0.8 * 0.610639, 0.8 * 0.3 * 0.610639 * 0.389361},
	} {
		loss, slope := Of(KTO, "").Single(o, a, good, kl)
		if math.Abs(loss-want[0]) > 1e-6 || math.Abs(slope-want[1]) > 1e-6 {
			t.Errorf("good %v: %v, %v, want %v", good, loss, slope, want)
		}
	}
	if r := Of(KTO, "").Reward(o, a); math.Abs(r-0.6) > 1e-15 {
		t.Errorf("reward %v", r)
	}
}

// Claim: each loss has the slopes of its value, by differences.
func TestSlopes(t *testing.T) {
	o := &Options{Beta: 0.7, LabelSmoothing: 0.15, Gamma: 0.4, Good: 1.2, Bad: 0.7}
	const h = 1e-5
	off := func(got, low, high float64) bool { return math.Abs(got-(high-low)/(2*h)) > 1e-7*(1+math.Abs(got)) }
	for i := range table {
		l := &table[i]
		for _, at := range [][2]float64{{-8.5, -9.25}, {-6, -3}, {-2.5, -11}, {-7, -7.5}} {
			c, r := Answer{Policy: at[0], Reference: -7, Predicted: 4, Tokens: 5}, Answer{Policy: at[1], Reference: -8, Predicted: 6, Tokens: 6}
			if l.Paired() {
				value := func(c, r Answer, dc, dr float64) float64 {
					c.Policy, r.Policy = c.Policy+dc, r.Policy+dr
					loss, _, _ := l.Pair(o, c, r)
					return loss
				}
				_, byC, byR := l.Pair(o, c, r)
				if off(byC, value(c, r, -h, 0), value(c, r, h, 0)) || off(byR, value(c, r, 0, -h), value(c, r, 0, h)) {
					t.Errorf("%s at %v: slopes %v, %v", l.Name, at, byC, byR)
				}
				continue
			}
			for _, good := range []bool{true, false} {
				value := func(d float64) float64 {
					a := c
					a.Policy += d
					loss, _ := l.Single(o, a, good, 0.3)
					return loss
				}
				if _, slope := l.Single(o, c, good, 0.3); off(slope, value(-h), value(h)) {
					t.Errorf("%s at %v, good %v: slope %v", l.Name, at, good, slope)
				}
			}
		}
	}
}

// Claim: far from the middle the values stay finite.
func TestFarAway(t *testing.T) {
	o := &Options{Beta: 0.5, LabelSmoothing: 0.1, Gamma: 1, Good: 1, Bad: 1}
	for i := range table {
		l := &table[i]
		for _, p := range [][2]float64{{0, -1e4}, {-1e4, 0}, {0, 0}, {-1e4, -1e4}} {
			a, b := Answer{Policy: p[0], Reference: -50, Predicted: 10, Tokens: 10}, Answer{Policy: p[1], Reference: -60}
			var numbers []float64
			if l.Paired() {
				x, y, z := l.Pair(o, a, b)
				numbers = []float64{x, y, z}
			} else {
				x, y := l.Single(o, a, true, 0)
				numbers = []float64{x, y}
			}
			for _, n := range numbers {
				if math.IsNaN(n) || math.IsInf(n, 0) {
					t.Errorf("%s at %v: %v", l.Name, p, numbers)
				}
			}
		}
	}
}

// Claim: a method's own loss comes without a name; others by their names, of the methods that have
// them.
func TestNames(t *testing.T) {
	for method, want := range map[string]string{DPO: "sigmoid", IPO: "ipo", ORPO: "orpo", SimPO: "simpo", KTO: "kto"} {
		if l := Of(method, ""); l == nil || l.Name != want || Names(method)[0] != want && method != DPO {
			t.Errorf("%s: %v", method, l)
		}
	}
	if Of(KTO, "hinge") != nil || Of("sft", "") != nil || Of("", "") != nil || Of("", "hinge") != nil || Of(DPO, "hinge") == nil || Of(DPO, "kto") != nil {
		t.Error("a loss of another method")
	}
}

// Claim: losses that no reference case has are those of TRL 1.16's formulas, for a pair with the log
// ratios 2.5 (of 4 tokens) and −1 (of 6), worked apart from this code.
func TestOtherLosses(t *testing.T) {
	o := &Options{Beta: 0.3, LabelSmoothing: 0.1, Good: 1, Bad: 1}
	chosen, rejected := Answer{Policy: -10, Reference: -12.5, Predicted: 4, Tokens: 4}, Answer{Policy: -9, Reference: -8, Predicted: 6, Tokens: 6}
	for name, want := range map[string]float64{"sigmoid_norm": 0.5814314526868343, "exo_pair": 0.1026914427608753, "nca_pair": 1.2324841314066135, "bco_pair": 0.941226250583427,
		"sppo_hard": 1.1388888888888888, "apo_zero": 0.7463787840129481, "apo_down": 0.938403799993239} {
		if got, _, _ := Of(DPO, name).Pair(o, chosen, rejected); math.Abs(got-want) > 1e-14 {
			t.Errorf("%s: %.16g, want %.16g", name, got, want)
		}
	}
	for good, want := range map[bool]float64{true: 0.320821300824607, false: 0.679178699175393} {
		if got, _ := Of(KTO, "apo_zero_unpaired").Single(o, chosen, good, 0.7); math.Abs(got-want) > 1e-14 {
			t.Errorf("apo_zero_unpaired, good %v: %.16g, want %.16g", good, got, want)
		}
	}
}
