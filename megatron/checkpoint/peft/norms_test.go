package peft

import (
	"reflect"
	"strings"
	"testing"

	"monotron/internal/exitcode"
	"monotron/megatron/spec"
)

// Claim (docs/checkpoints.md): the modules of a model with --apply-layernorm-1p have the names that its export has, whose
// norms are without it; but the weights of those norms are other numbers there, and are refused as modules to save.
func TestNormsOfWeightPlusOneTakeAdapters(t *testing.T) {
	plain, err := spec.Preset("llama-15m")
	if err != nil {
		t.Fatal(err)
	}
	plus := plain
	plus.NormOnePlus = true
	c := Config{R: 2, Alpha: 4, Targets: Names{Pattern: AllLinear}}
	want, err1 := Resolve(&plain, "", c)
	got, err2 := Resolve(&plus, "", c)
	if err1 != nil || err2 != nil || len(want) == 0 || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v: %d modules, want %d", err1, err2, len(got), len(want))
	}
	c.Saved = Names{List: []string{"input_layernorm"}}
	if _, err := Retrain(&plain, "", c, want); err != nil {
		t.Error(err)
	}
	if _, err := Retrain(&plus, "", c, want); exitcode.CodeOf(err) != exitcode.Usage || !strings.Contains(err.Error(), "--apply-layernorm-1p") {
		t.Error(err)
	}
}
