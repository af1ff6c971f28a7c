package tokenizer

import (
	"maps"
	"slices"
	"testing"
)

// Claim: Idle knows every type and every flag, and calls a flag idle that the type does not read.
func TestIdle(t *testing.T) {
	if known := slices.Sorted(maps.Keys(uses)); !slices.Equal(known, slices.Sorted(slices.Values(types))) {
		t.Errorf("types %v, want %v", known, types)
	}
	read := map[string]bool{}
	for kind, list := range uses {
		n := 0
		for _, f := range Flags() {
			c := Config{Type: kind}
			if f.Name == "tokenizer-type" {
				continue
			}
			if err := f.Set(&c, []string{"7"}); err != nil {
				t.Fatal(err)
			}
			got, idle := c.Idle()
			if used := slices.Contains(list, f.Name); got != kind || used == slices.Contains(idle, f.Name) || len(idle) > 1 {
				t.Errorf("%s --%s: %v", kind, f.Name, idle)
			} else if used {
				read[f.Name] = true
				n++
			}
		}
		if n != len(list) {
			t.Errorf("%s: %v are no flags, all", kind, list)
		}
	}
	if len(read) != len(Flags())-1 {
		t.Errorf("some flag is of no type: only %v are", slices.Sorted(maps.Keys(read)))
	}
	if _, idle := (Config{VocabFile: "a", MergeFile: "b", VocabSize: 3}).Idle(); !slices.Equal(idle, []string{"vocab-size"}) {
		t.Errorf("derived type: %v", idle)
	}
}
