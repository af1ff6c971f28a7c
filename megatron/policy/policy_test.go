package policy

import (
	"encoding/json"
	"math"
	"os"
	"testing"
)

// trlCase is a batch of answers with what TRL's own code makes of it (tests/proofs/tuning/grpo.py).
type trlCase struct {
	Loss      string  `json:"loss_type"`
	Level     string  `json:"level"`
	Scale     string  `json:"scale"`
	Beta      float64 `json:"beta"`
	Low       float64 `json:"low"`
	High      float64 `json:"high"`
	Most      int     `json:"max_completion_length"`
	Group     int     `json:"group"`
	Rewards   []float64
	Advantage []float64 `json:"advantages"`
	Same      float64
	Policy    [][]float64
	Sampled   [][]float64
	Reference [][]float64
	Value     float64            `json:"loss"`
	Gradient  [][]float64        `json:"gradient"`
	Metrics   map[string]float64 `json:"metrics"`
}

func readTRL(t *testing.T) (list []trlCase) {
	t.Helper()
	text, err := os.ReadFile("testdata/trl.json")
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// Claim (TRL 1.16, its own _compute_loss in float64): advantages, loss, gradient by each token's
// log-probability, clipped shares and KL of 36 batches, for every loss, importance level and scale.
func TestLossesOfTRL(t *testing.T) {
	list := readTRL(t)
	if len(list) != 36 {
		t.Fatalf("%d cases", len(list))
	}
	worst := 0.0
	near := func(what string, got, want float64) {
		t.Helper()
		off := math.Abs(got - want)
		worst = math.Max(worst, off)
		if !(off <= 2e-7*(1+math.Abs(want))) { // TRL's metrics are f32
			t.Errorf("%s: %.17g, want %.17g", what, got, want)
		}
	}
	for _, c := range list {
		o := Options{Group: c.Group, Low: c.Low, High: c.High, Beta: c.Beta, Loss: c.Loss, Scale: c.Scale, Sequences: c.Level == "sequence", MaxTokens: c.Most}
		advantages, same := Advantages(c.Rewards, c.Group, c.Scale)
		near("same", same, c.Same)
		var loss, count, low, high, kl, tokens float64
		var slopes [][]float64
		for i := range c.Policy {
			near("advantage", advantages[i], c.Advantage[i])
			terms := o.Of(&Answer{Advantage: advantages[i], Policy: c.Policy[i], Sampled: c.Sampled[i], Reference: c.Reference[i]})
			n, _ := o.Weight(len(c.Policy[i]))
			loss, count, low, high, kl, tokens = loss+terms.Loss, count+n, low+terms.Low, high+terms.High, kl+terms.KL, tokens+float64(len(c.Policy[i]))
			slopes = append(slopes, terms.Slopes)
		}
		near("loss", loss/count, c.Value)
		for i, row := range slopes {
			for k, slope := range row {
				near("gradient", slope/count, c.Gradient[i][k])
			}
		}
		if of := tokens; true {
			if o.Sequences {
				of = float64(len(c.Policy))
			}
			near("low", low/of, c.Metrics["clip_ratio/low_mean"])
			near("high", high/of, c.Metrics["clip_ratio/high_mean"])
		}
		if c.Beta > 0 {
			near("kl", kl/tokens, c.Metrics["kl"])
		}
	}
	t.Logf("worst difference %.3g", worst)
}

// Claim, worked by hand: rewards 1, 0, 0, 1 have the mean ½ and the deviation √⅓, so that advantages
// are ±½/(√⅓+1e-4); equal rewards teach nothing.
func TestAdvantagesByHand(t *testing.T) {
	list, same := Advantages([]float64{1, 0, 0, 1, 3, 3, 3, 3}, 4, ByGroup)
	want := 0.5 / (math.Sqrt(1.0/3) + 1e-4)
	for i, sign := range []float64{1, -1, -1, 1, 0, 0, 0, 0} {
		if math.Abs(list[i]-sign*want) > 1e-15 {
			t.Errorf("advantage %d is %g, want %g", i, list[i], sign*want)
		}
	}
	if same != 0.5 {
		t.Errorf("%g of the rewards are equal", same)
	}
}

// Claim: an answer whose probabilities are those it was sampled with has ratios of exactly 1, the loss
// −A a token and the slope −A.
func TestFirstPass(t *testing.T) {
	o := Options{Low: 0.2, High: 0.2, Loss: DAPO}
	terms := o.Of(&Answer{Advantage: 0.75, Policy: []float64{-1, -2.5, -0.125}, Sampled: []float64{-1, -2.5, -0.125}})
	if terms.Loss != -2.25 || terms.Ratio != [2]float64{1, 1} || terms.Slopes[0] != -0.75 || terms.Slopes[2] != -0.75 || terms.Low+terms.High != 0 {
		t.Errorf("%+v", terms)
	}
}
