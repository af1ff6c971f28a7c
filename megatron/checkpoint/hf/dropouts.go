package hf

import (
	"encoding/json"
	"path/filepath"

	"monotron/internal/exitcode"
)

// Dropouts are what the config.json of a folder says of training: of the residual branches and of attention's
// probabilities; 0 where it says nothing.
func Dropouts(folder string) (hidden, attention float64, err error) {
	path := filepath.Join(folder, "config.json")
	data, err := exitcode.ReadFile(path, 64<<20)
	if err != nil {
		return 0, 0, err
	}
	var c map[string]any
	if err := json.Unmarshal(data, &c); err != nil {
		return 0, 0, exitcode.Errorf(exitcode.BadData, "%s: %w", path, err)
	}
	// Families have other names for the same.
	first := func(names ...string) (float64, error) {
		for _, name := range names {
			v, given := c[name]
			if !given || v == nil {
				continue
			}
			n, is := v.(float64)
			if !is || n < 0 || n >= 1 {
				return 0, exitcode.Errorf(exitcode.BadData, "%s: %s is %v; it must be 0 or more and less than 1", path, name, v)
			}
			return n, nil
		}
		return 0, nil
	}
	if hidden, err = first("resid_pdrop", "hidden_dropout", "residual_dropout", "resid_dropout", "dropout"); err != nil {
		return 0, 0, err
	}
	attention, err = first("attn_pdrop", "attention_dropout")
	return hidden, attention, err
}
