package spec

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"monotron/internal/golden"
)

// Claim: frequencies and the factor of cos and sin are transformers' for every kind of rule,
// at every length. Source: golden/model/rope (transformers 5.24 in float64).
func TestRopeRulesAsTransformers(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(golden.Dir(t, "model"), "rope", "case.json"))
	if err != nil {
		t.Fatal(err)
	}
	var table struct {
		Rows []struct {
			Name    string
			HeadDim int             `json:"head_dim"`
			Most    int             `json:"max_position_embeddings"`
			Rule    json.RawMessage `json:"rope_parameters"`
			At      []struct {
				Position    int
				Factor      float64   `json:"attention_factor"`
				Frequencies []float64 `json:"inv_freq"`
				Cos, Sin    []float64
			}
		}
	}
	if err := json.Unmarshal(raw, &table); err != nil || len(table.Rows) < 12 {
		t.Fatal(len(table.Rows), err)
	}
	for _, row := range table.Rows {
		rule, err := ParseRopeRule(string(row.Rule), row.HeadDim)
		if err != nil {
			t.Errorf("%s: %v", row.Name, err)
			continue
		}
		d := row.HeadDim
		if rule.Partial != nil && rule.Type != RopeProportional {
			d = int(float64(d) * *rule.Partial)
		}
		for _, at := range row.At {
			got := rule.Table(0, d, at.Position+1, row.Most)
			if at.Frequencies == nil {
				at.Frequencies = row.At[0].Frequencies
			}
			if len(got.Frequencies) != len(at.Frequencies) || math.Abs(got.Factor-at.Factor) > 1e-12 {
				t.Errorf("%s at %d: %d pairs with factor %v, want %d with %v", row.Name, at.Position, len(got.Frequencies), got.Factor, len(at.Frequencies), at.Factor)
				continue
			}
			for i, want := range at.Frequencies {
				if math.Abs(got.Frequencies[i]-want) > 1e-12*math.Abs(want) {
					t.Errorf("%s at %d: pair %d has frequency %v, want %v", row.Name, at.Position, i, got.Frequencies[i], want)
					break
				}
			}
		}
	}
}
