package megatron

import (
	"reflect"
	"strings"
	"testing"

	"monotron/megatron/checkpoint/pickle"
	"monotron/megatron/spec"
)

// Claim: every scaling of RoPE comes back from Megatron's arguments; one that
// Megatron would not compute is told, its own is not.
func TestRopeScalingTravels(t *testing.T) {
	for _, c := range []struct {
		scaling *spec.RopeScaling
		told    bool
	}{
		{nil, false},
		{&spec.RopeScaling{Factor: 8, LowFreq: 1, HighFreq: 4, OriginalMax: 8192}, false},
		{&spec.RopeScaling{Factor: 32, LowFreq: 1, HighFreq: 4, OriginalMax: 8192}, true}, // Llama 3.2
		{&spec.RopeScaling{Factor: 4, LowFreq: 1.5, HighFreq: 3, OriginalMax: 16}, true},
	} {
		m, err := spec.Preset("gpt2-124m")
		if err != nil {
			t.Fatal(err)
		}
		m.Position, m.RopeScaling = spec.PositionRope, c.scaling
		args := Args{&pickle.Dict{Pairs: modelArgs(&m)}}
		if got := args.ropeScaling(); !reflect.DeepEqual(got, c.scaling) {
			t.Errorf("%+v came back as %+v", c.scaling, got)
		}
		note, told := ropeNote(c.scaling)
		if told != c.told || told != strings.Contains(note, "Megatron-LM") {
			t.Errorf("%+v: %q", c.scaling, note)
		}
	}
}
