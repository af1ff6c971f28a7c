package megatron

import (
	"math"
	"reflect"
	"strings"
	"testing"

	"monotron/internal/pickle"
	"monotron/megatron/checkpoint"
	"monotron/megatron/spec"
	"monotron/tokenizer"
)

// Claim: every scaling of RoPE comes back from Megatron's arguments; one that
// Megatron would not compute is reported, its own is not.
func TestRopeScalingTravels(t *testing.T) {
	for _, c := range []struct {
		scaling  *spec.RopeScaling
		reported bool
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
		note, reported := ropeNote(c.scaling)
		if reported != c.reported || reported != strings.Contains(note, "Megatron-LM") {
			t.Errorf("%+v: %q", c.scaling, note)
		}
	}
}

// An argument of another type, or a size that no layout has, is named; taken for
// absent it would make another model.
func TestArgumentTypes(t *testing.T) {
	for name, v := range map[string]pickle.Value{"ffn_hidden_size": "x", "padded_vocab_size": 1.5, "num_query_groups": &pickle.List{}, "hidden_size": int64(1) << 40,
		"pipeline_model_parallel_size": int64(0), "tensor_model_parallel_size": int64(-2), "rotary_base": math.NaN(), "norm_epsilon": "1e-5"} {
		a := Args{pickle.NewDict("num_layers", int64(2), "hidden_size", int64(8), "num_attention_heads", int64(2), "padded_vocab_size", int64(64),
			"max_position_embeddings", int64(4), "kv_channels", nil)}
		if _, err := a.Model(); err != nil {
			t.Fatal(err)
		}
		a.Set(name, v)
		if _, err := a.Model(); err == nil || !strings.Contains(err.Error(), "args."+name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Claim: arguments are set in one order, so that a checkpoint has the same bytes whenever it is written.
func TestArgumentsInOneOrder(t *testing.T) {
	m, err := spec.Preset("moe-237m")
	if err != nil {
		t.Fatal(err)
	}
	zero := 0
	written := func() string {
		target := &Target{Model: &m, Layout: checkpoint.Layout{}.Complete(), Args: Args{&pickle.Dict{}}}
		target.Args.setTokenizer(tokenizer.Config{Type: "TikTokenizer", Model: "ranks", TikPattern: "v2", NullEOD: &zero, NullPad: &zero, NoSpecial: true, Legacy: true})
		target.fillArgs(checkpoint.Info{Model: &m}, "BF16")
		var names []string
		for _, p := range target.Args.Pairs {
			names = append(names, p.Key.(string))
		}
		return strings.Join(names, " ")
	}
	want := written()
	for range 20 {
		if got := written(); got != want {
			t.Fatalf("arguments are %s, before they were %s", got, want)
		}
	}
}

// Claim: a list that contains itself, which a pickle can describe, has no JSON text and does not end the process.
func TestListsThatContainThemselves(t *testing.T) {
	list := &pickle.List{}
	list.Items = []pickle.Value{int64(1), list}
	if text, ok := asJSON(list, 0); ok {
		t.Errorf("its text is %q", text)
	}
	args := Args{pickle.NewDict("num_layers", int64(2), "loop", list)}
	if got := string(args.JSON()); got != `{"num_layers":2}` {
		t.Errorf("arguments are %s", got)
	}
}
