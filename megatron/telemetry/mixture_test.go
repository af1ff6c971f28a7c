package telemetry

import (
	"encoding/json"
	"testing"
)

// Claim: shares are of an even part, percentiles are of experts in order, and an expert
// without a token is named.
func TestBalance(t *testing.T) {
	l := MixtureLayer{Number: 3, Tokens: []float64{0, 50, 100, 250}}
	text, err := json.Marshal(l.Balance())
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"layer":3,"min":0,"max":2.5,"std":0.9354143466934853,"p50":1,"p75":2.5,"p90":2.5,"p95":2.5,"starved":[0],"shares":[0,0.5,1,2.5]}`; string(text) != want {
		t.Errorf("%s, want %s", text, want)
	}
	if b := (&MixtureLayer{Tokens: []float64{7, 7}}).Balance(); b.Least != 1 || b.Most != 1 || b.Spread != 0 {
		t.Errorf("an even layer: %+v", b)
	}
}
