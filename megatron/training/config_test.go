package training

import (
	"encoding/json"
	"reflect"
	"testing"

	"monotron/fault"
)

// Claim: V = ceil(vocab/(divisor*tp))*divisor*tp, or --padded-vocab-size where
// it is large enough (reference/megatron-model.md, section 1).
func TestSetVocab(t *testing.T) {
	for _, c := range []struct{ size, divisor, tp, padded, want int }{
		{50257, 128, 1, 0, 50304}, {50257, 128, 4, 0, 50688}, {100, 1, 1, 0, 100}, {100, 128, 2, 120, 120},
		{100, 128, 2, 121, -1}, {100, 128, 1, 99, -1}, {0, 128, 1, 0, -1},
	} {
		config := Config{VocabDivisor: c.divisor, PaddedVocab: c.padded, Layout: Layout{TP: c.tp}}
		err := config.SetVocab(c.size)
		if c.want < 0 {
			if fault.CodeOf(err) != fault.Usage {
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
	in := Config{RampupBatchSize: []int{1, 2, 3}, Precision: BF16, SamplePrompt: []string{"a"}, Seed: 7}
	in.Model.NormEpsilon, in.Optimizer.LR = 1e-6, 1.5e-4
	text, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var out Config
	if err := json.Unmarshal(text, &out); err != nil || !reflect.DeepEqual(in, out) {
		t.Errorf("%v\n%+v\n%+v", err, in, out)
	}
}

// Claim: rules that cannot hold are refused when the run is set up.
func TestBatchSizeRefusals(t *testing.T) {
	for _, c := range []Config{
		{MicroBatchSize: 0, GlobalBatchSize: 4},
		{MicroBatchSize: 3, GlobalBatchSize: 4},
		{MicroBatchSize: 1, GlobalBatchSize: 4, RampupBatchSize: []int{8, 1, 10}},
		{MicroBatchSize: 1, GlobalBatchSize: 4, RampupBatchSize: []int{1, 0, 10}},
		{MicroBatchSize: 1, GlobalBatchSize: 4, RampupBatchSize: []int{1, 1, 10}, StepBatchSizeSchedule: "0:4"},
		{MicroBatchSize: 1, StepBatchSizeSchedule: "0:4", DecreaseBatchSizeIfNeeded: true},
		{MicroBatchSize: 1, StepBatchSizeSchedule: "0:4 1K:0"},
		{MicroBatchSize: 1, StepBatchSizeSchedule: "0:4 10:5 11:6", SeqLength: 8},
		{MicroBatchSize: 1, StepBatchSizeSchedule: "0:4 nan:5"},
		{MicroBatchSize: 1, StepBatchSizeSchedule: ""},
	} {
		if _, err := NewBatchSizes(&c, 1); fault.CodeOf(err) != fault.Usage {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// Claim: --train-samples is a whole number of batches, --train-iters itself.
func TestIterations(t *testing.T) {
	for i, c := range []struct {
		config Config
		want   int
	}{
		{Config{MicroBatchSize: 2, GlobalBatchSize: 8, TrainIters: 24}, 24},
		{Config{MicroBatchSize: 2, GlobalBatchSize: 8, TrainSamples: 190}, 23},
		{Config{MicroBatchSize: 2, GlobalBatchSize: 8, TrainSamples: 20, RampupBatchSize: []int{4, 4, 11}}, 4}, // 4, 4, 4, 8
		{Config{MicroBatchSize: 2, StepBatchSizeSchedule: "0:4 12:8", TrainSamples: 21}, 5},                    // 4, 4, 4, 8 and one sample
	} {
		if got, err := c.config.Iterations(); err != nil || got != c.want {
			t.Errorf("case %d: %d iterations, want %d (%v)", i, got, c.want, err)
		}
	}
	if _, err := (&Config{MicroBatchSize: 2, GlobalBatchSize: 8, TrainSamples: 7}).Iterations(); fault.CodeOf(err) != fault.Usage {
		t.Errorf("less than one batch: %v", err)
	}
}
