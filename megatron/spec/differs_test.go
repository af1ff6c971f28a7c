package spec

import (
	"reflect"
	"slices"
	"testing"
)

// alike are the fields that do not make weights another model's, and why.
var alike = map[string]string{
	"HiddenSize": "a shape: the tensors say it", "FFNHiddenSize": "a shape", "PaddedVocabSize": "a shape", "MaxPositions": "a shape",
	"VocabSize": "the tokenizer's; a run may name another", "Context": "a length, not a weight's meaning",
	"NormEpsilon": "told as changed, not refused, as Megatron does", "WindowLeft": "told as changed: it may grow during training", "Windowed": "as WindowLeft",
	"HiddenDropout": "of training alone", "AttentionDropout": "of training alone", "InitStd": "of the first weights", "EmbeddingInitStd": "of the first weights",
	"Adapters": "their tensors say it", "Retrained": "of training alone", "PaddedVocabCounts": "of the loss", "ApplyQKLayerScale": "no change in exact maths",

	"MTP.LossScale": "of the loss", "MTP.DetachHeads": "of training alone",

	"Experts.FFNHiddenSize": "a shape", "Experts.SharedFFN": "a shape", "Experts.LatentSize": "a shape", "Experts.RouterDtype": "precision", "Experts.BiasUpdateRate": "of training alone",
	"Experts.Balancing": "of the loss", "Experts.AuxLossCoeff": "of the loss", "Experts.ZLossCoeff": "of the loss", "Experts.JitterEps": "of training alone", "Experts.GlobalExact": "of the loss", "Experts.QuantileEMA": "of training alone",
	"Experts.Dispatcher": "who carries, not what", "Experts.SharedOverlap": "when, not what", "Experts.CapacityFactor": "of training alone", "Experts.PadToCapacity": "of training alone", "Experts.DropPolicy": "of training alone", "Experts.ForceBalance": "of training alone",
}

// TestNoFieldIsForgotten: a change of any field of a model is one that Differs reports by the
// field's name, or one in the list above with its reason. A new field is in neither, and a
// renamed one in the wrong one.
func TestNoFieldIsForgotten(t *testing.T) {
	seen := map[string]bool{}
	walk := func(path string, of func(m *Model) reflect.Value) {
		kind := of(sample()).Type()
		for i := range kind.NumField() {
			name := path + kind.Field(i).Name
			seen[name] = true
			a, b := sample(), sample()
			change(t, of(b).Field(i))
			list := a.differences(b)
			listed := slices.ContainsFunc(list, func(d difference) bool { return d.field == name })
			if _, isAlike := alike[name]; listed == isAlike {
				t.Errorf("%s: told %v (%q), said to be alike %v: it belongs into Differs or, with a reason, into this test", name, listed, list, isAlike)
			}
			if len(a.Differs(a)) > 0 || len(a.Differs(sample())) > 0 {
				t.Fatal("a model differs from itself")
			}
		}
	}
	walk("", func(m *Model) reflect.Value { return reflect.ValueOf(m).Elem() })
	walk("Experts.", func(m *Model) reflect.Value { return reflect.ValueOf(m.Experts).Elem() })
	walk("MTP.", func(m *Model) reflect.Value { return reflect.ValueOf(m.MTP).Elem() })
	for name := range alike {
		if !seen[name] {
			t.Errorf("%s is no field", name)
		}
	}
}

// TestUnusedSettingsDoNotDiffer: without RoPE its base means nothing.
func TestUnusedSettingsDoNotDiffer(t *testing.T) {
	a, b := sample(), sample()
	a.RotaryInterpolation, b.RotaryInterpolation = 0, 1
	if list := a.Differs(b); len(list) > 0 {
		t.Errorf("no interpolation differs from none: %q", list)
	}
	a.Position, b.Position, b.RotaryBase = PositionLearned, PositionLearned, 5
	if list := a.Differs(b); len(list) > 0 {
		t.Errorf("without RoPE: %q", list)
	}
}

// TestShapesAreGivenByFlags: what makes tensors larger or fewer is named by its flag, also for a mixture
// and a dense model.
func TestShapesAreGivenByFlags(t *testing.T) {
	a, b := sample(), sample()
	a.Experts.FFNHiddenSize, b.Experts.FFNHiddenSize, b.HiddenSize, b.Experts.Num, b.MaxPositions = 8, 16, 32, 5, 7
	if got, want := a.Reshaped(b), []string{"--hidden-size 0 -> 32", "--moe-ffn-hidden-size 8 -> 16", "--num-experts 4 -> 5"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	b = sample()
	b.Experts = nil
	a.Experts.FFNHiddenSize = 8
	if got, want := a.Reshaped(b), []string{"a mixture of experts true -> false"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	a.Position, b.Position, b.Experts = PositionLearned, PositionLearned, a.Experts
	b.MaxPositions = 9
	if got, want := a.Reshaped(b), []string{"--max-position-embeddings 0 -> 9"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// sample is a model that uses all features.
func sample() *Model {
	return &Model{Position: PositionRope, RopeScaling: &RopeScaling{Factor: 8}, Latent: &Latent{KVRank: 4}, Delta: &Delta{Taps: 4}, Conv: &ShortConv{Taps: 3}, Mamba: &Mamba{Taps: 4}, Full: &FullAttention{KVChannels: 4}, Experts: &Experts{Num: 4}, MTP: &MTP{Depths: 1}}
}

// change gives a field another value.
func change(t *testing.T, v reflect.Value) {
	switch v.Kind() {
	case reflect.Int:
		v.SetInt(v.Int() + 7)
	case reflect.Float64:
		v.SetFloat(v.Float() + 7)
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Pointer:
		v.SetZero()
	case reflect.Slice:
		v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
	default:
		t.Fatalf("no other value of a %s", v.Kind())
	}
}
