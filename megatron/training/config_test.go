package training

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"testing"

	"monotron/internal/exitcode"
	"monotron/megatron/config"
)

// Claim: V = ceil(vocab/(divisor*tp))*divisor*tp, or --padded-vocab-size where
// it is large enough (Megatron-LM, _vocab_size_with_padding).
func TestSetVocab(t *testing.T) {
	for _, c := range []struct{ size, divisor, tp, padded, want int }{
		{50257, 128, 1, 0, 50304}, {50257, 128, 4, 0, 50688}, {100, 1, 1, 0, 100}, {100, 128, 2, 120, 120},
		{100, 128, 2, 121, -1}, {100, 128, 1, 99, -1}, {0, 128, 1, 0, -1},
	} {
		config := config.Run{VocabDivisor: c.divisor, PaddedVocab: c.padded, Step: config.Step{Layout: config.Layout{TP: c.tp}}}
		err := config.SetVocab(c.size)
		if c.want < 0 {
			if exitcode.CodeOf(err) != exitcode.Usage {
				t.Errorf("%+v: %v", c, err)
			}
			continue
		}
		if err != nil || config.Model.VocabSize != c.size || config.Model.PaddedVocabSize != c.want {
			t.Errorf("%+v: padded to %d, %v", c, config.Model.PaddedVocabSize, err)
		}
	}
}

// Claim: a Config survives JSON, as it is saved with the run.
func TestConfigSurvivesJSON(t *testing.T) {
	in := config.Run{RampupBatchSize: []int{1, 2, 3}, SamplePrompt: []string{"a"}, Step: config.Step{Precision: config.BF16, Seed: 7}}
	in.Model.NormEpsilon, in.Optimizer.LR = 1e-6, 1.5e-4
	text, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var out config.Run
	if err := json.Unmarshal(text, &out); err != nil || !reflect.DeepEqual(in, out) {
		t.Errorf("%v\n%+v\n%+v", err, in, out)
	}
}

// Claim: checkpoints keep the engine's settings among the run's, each under its own name:
// those that the versions before wrote are read, and they read ours.
func TestConfigIsFlatInJSON(t *testing.T) {
	text, err := json.Marshal(config.Run{})
	if err != nil {
		t.Fatal(err)
	}
	var kept map[string]json.RawMessage
	if err := json.Unmarshal(text, &kept); err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, of := range []reflect.Type{reflect.TypeFor[config.Run](), reflect.TypeFor[config.Step]()} {
		for _, f := range reflect.VisibleFields(of) {
			if len(f.Index) == 1 && !f.Anonymous {
				want = append(want, f.Name)
			}
		}
	}
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(kept)); !slices.Equal(got, want) {
		t.Errorf("kept %v\nfields %v", got, want)
	}
	before := `{"Model":{"NumLayers":3},"Layout":{"TP":2},"Optimizer":{"LR":0.5},"Precision":"bf16","MicroBatchSize":4,"SeqLength":16,"Seed":9,"CheckForNaN":true}`
	var c config.Run
	if err := json.Unmarshal([]byte(before), &c); err != nil {
		t.Fatal(err)
	}
	if c.Model.NumLayers != 3 || c.Layout.TP != 2 || c.Optimizer.LR != 0.5 || c.Precision != config.BF16 || c.MicroBatchSize != 4 || c.SeqLength != 16 || c.Seed != 9 || !c.CheckForNaN {
		t.Errorf("read %+v", c)
	}
}

// Claim: rules that cannot hold are refused when the run is set up.
func TestBatchSizeRefusals(t *testing.T) {
	for _, c := range []config.Run{
		{MicroBatchSize: 0, GlobalBatchSize: 4},
		{MicroBatchSize: 3, GlobalBatchSize: 4},
		{MicroBatchSize: 1, GlobalBatchSize: 4, RampupBatchSize: []int{8, 1, 10}},
		{MicroBatchSize: 1, GlobalBatchSize: 4, RampupBatchSize: []int{1, 0, 10}},
		{MicroBatchSize: 1, GlobalBatchSize: 4, RampupBatchSize: []int{1, 1, 10}, StepBatchSizeSchedule: "0:4"},
		{MicroBatchSize: 1, StepBatchSizeSchedule: "0:4", DecreaseBatchSizeIfNeeded: true},
		{MicroBatchSize: 1, StepBatchSizeSchedule: "0:4 1K:0"},
		{MicroBatchSize: 1, StepBatchSizeSchedule: "0:4 10:5 11:6", Step: config.Step{SeqLength: 8}},
		{MicroBatchSize: 1, StepBatchSizeSchedule: "0:4 nan:5"},
		{MicroBatchSize: 1, StepBatchSizeSchedule: ""},
	} {
		if _, err := config.NewBatchSizes(&c, 1); exitcode.CodeOf(err) != exitcode.Usage {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// Claim: --train-samples is an integral number of batches, --train-iters itself.
func TestIterations(t *testing.T) {
	for i, c := range []struct {
		config config.Run
		want   int
	}{
		{config.Run{MicroBatchSize: 2, GlobalBatchSize: 8, TrainIters: 24}, 24},
		{config.Run{MicroBatchSize: 2, GlobalBatchSize: 8, TrainSamples: 190}, 23},
		{config.Run{MicroBatchSize: 2, GlobalBatchSize: 8, TrainSamples: 20, RampupBatchSize: []int{4, 4, 11}}, 4}, // 4, 4, 4, 8
		{config.Run{MicroBatchSize: 2, StepBatchSizeSchedule: "0:4 12:8", TrainSamples: 21}, 5},                    // 4, 4, 4, 8 and one sample
	} {
		if got, err := c.config.Iterations(); err != nil || got != c.want {
			t.Errorf("case %d: %d iterations, want %d (%v)", i, got, c.want, err)
		}
	}
	if _, err := (&config.Run{MicroBatchSize: 2, GlobalBatchSize: 8, TrainSamples: 7}).Iterations(); exitcode.CodeOf(err) != exitcode.Usage {
		t.Errorf("less than one batch: %v", err)
	}
}
