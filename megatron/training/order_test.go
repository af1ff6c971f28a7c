package training

import (
	"encoding/json"
	"testing"

	"monotron/dataset"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/native"
)

// Claim: the order of a resumed run is what its checkpoint says, in whose words
// ever: our own state, our settings, Megatron's arguments, or ours among them.
func TestOrderOfACheckpoint(t *testing.T) {
	state := func(extra, text string) native.State {
		if extra == "" {
			return native.State{Config: json.RawMessage(text)}
		}
		return native.State{Extra: map[string]json.RawMessage{extra: json.RawMessage(text)}}
	}
	both := sampleOrder{Train: dataset.Draw{MicroBatch: 2, DP: 4}, Valid: dataset.Draw{MicroBatch: 2, DP: 4}}
	text, err := json.Marshal(both)
	if err != nil {
		t.Fatal(err)
	}
	quoted, err := json.Marshal(string(text))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		state native.State
		known bool
	}{
		"our state":            {state(checkpoint.ExtraOrder, string(text)), true},
		"our settings":         {state("", `{"DataloaderType":"cyclic","MicroBatchSize":2,"EvalMicroBatchSize":2,"Layout":{"DP":4}}`), true},
		"our state among args": {state(checkpoint.ExtraArgs, `{"dataloader_type":"cyclic","micro_batch_size":1,"data_parallel_size":8,"sample_order":`+string(quoted)+`}`), true},
		"Megatron's arguments": {state(checkpoint.ExtraArgs, `{"dataloader_type":"cyclic","micro_batch_size":2,"data_parallel_size":4}`), true},
		"by number before":     {state("", `{"DataloaderType":"single","MicroBatchSize":2,"Layout":{"DP":4}}`), false},
		"nothing":              {native.State{}, false},
		"nonsense":             {state(checkpoint.ExtraOrder, `{"Train":{"MicroBatch":-1,"DP":0}}`), false},
	} {
		got, known := orderOf(c.state)
		if known != c.known || known && got != both {
			t.Errorf("%s: %+v, %v", name, got, known)
		}
	}
}
