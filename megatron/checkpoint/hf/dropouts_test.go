package hf

import (
	"os"
	"path/filepath"
	"testing"

	"monotron/internal/exitcode"
)

// TestDropouts: under the names of the families, 0 where the key is absent; an invalid dropout is refused.
func TestDropouts(t *testing.T) {
	for text, want := range map[string][2]float64{
		`{"resid_pdrop":0.1,"attn_pdrop":0.2}`:             {0.1, 0.2},
		`{"hidden_dropout":0.05,"attention_dropout":null}`: {0.05, 0},
		`{"attention_dropout":0.3}`:                        {0, 0.3},
		`{}`:                                               {0, 0},
	} {
		folder := t.TempDir()
		if err := os.WriteFile(filepath.Join(folder, "config.json"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if hidden, attention, err := Dropouts(folder); hidden != want[0] || attention != want[1] || err != nil {
			t.Errorf("%s: %v, %v, %v", text, hidden, attention, err)
		}
	}
	for _, text := range []string{`{"resid_pdrop":1}`, `{"resid_pdrop":"x"}`, `[]`, ``} {
		folder := t.TempDir()
		if err := os.WriteFile(filepath.Join(folder, "config.json"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Dropouts(folder); exitcode.CodeOf(err) != exitcode.BadData {
			t.Errorf("%s: %v", text, err)
		}
	}
}
