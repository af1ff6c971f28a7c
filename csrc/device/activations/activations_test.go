package activations

import "testing"

// Claim: every activation has a row, and no name of any kind stands for two.
func TestTableIsComplete(t *testing.T) {
	names, flags := map[string]Activation{}, map[string]Activation{}
	hf := map[bool]map[string]Activation{true: {}, false: {}}
	once := func(seen map[string]Activation, name string, a Activation) {
		if other, ok := seen[name]; ok {
			t.Errorf("%q stands for %v and %v", name, other, a)
		}
		seen[name] = a
	}
	for a := range Activations {
		row := a.Row()
		if row.Name == "" || (row.Flag == "") != (row.Help == "") {
			t.Errorf("row %d is not filled in: %+v", int32(a), row)
		}
		once(names, row.Name, a)
		if got, err := Of(row.Name); err != nil || got != a {
			t.Errorf("%s is read as %v, %v", row.Name, got, err)
		}
		if row.Flag != "" {
			once(flags, row.Flag, a)
		}
		for _, name := range row.HF {
			once(hf[row.Gated], name, a)
			if got, err := OfHF(name, row.Gated); err != nil || got != a {
				t.Errorf("%s is read as %v, %v", name, got, err)
			}
		}
	}
	if len(WithFlag()) != len(flags) {
		t.Errorf("%d of %d have a flag", len(WithFlag()), len(flags))
	}
}

// Claim: what is in no row is an error, or says its number; never another activation.
func TestUnknownNames(t *testing.T) {
	if a, err := Of("gelu_tan"); err == nil {
		t.Errorf("a name that there is not is %v", a)
	}
	if a, err := OfHF("silu", false); err == nil {
		t.Errorf("silu without a gate is %v", a)
	}
	for _, a := range []Activation{-1, Activations} {
		if a.Gated() || a.String() == "" || a.Row().Flag != "" {
			t.Errorf("%d is %+v", int32(a), a.Row())
		}
	}
}
