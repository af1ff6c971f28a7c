package config

import (
	"encoding/json"

	"monotron/megatron/policy"
	"monotron/megatron/preference"
)

// Tuning says which rows a model is tuned on, and how. Data is "" unless the run is a tuning.
type Tuning struct {
	Method       string // TuneSupervised, also where empty, policy.GRPO, or one of preference.DPO and the others
	Data         string // file of JSON lines
	EvalData     string // of validation; "": none
	ChatTemplate string // file; "": the tokenizer's
	Packing      string // see dataset/sft
	LearnPrompts bool   // the loss learns prompts too
	NoShuffle    bool   // rows in the order of the file, again from the first at its end

	Preference Preference
	Policy     Policy `json:",omitzero"`
}

// Policy says how a model learns from rewards of its own answers, where Method is policy.GRPO.
type Policy struct {
	policy.Options
	Exact      bool    // an answer that is the row's is worth 1
	Pattern    string  // a regular expression judges; "": it does not
	Command    string  // judges; "": it does not
	CommandFor int     // seconds that it may take for a batch
	TopP       float64 // of sampling: 0 or 1: all
	TopK       int     // of sampling; 0: all
}

// Preference says how a model learns from preferences, where Method is such a one.
type Preference struct {
	Losses    []string  // see package preference; nil: the method's own
	Weights   []float64 // of Losses; nil: 1 each
	Reference string    // folder of the reference model; "": the weights the tuning starts from, without adapters
	SFTWeight float64

	preference.Options
}

// TuneSupervised is supervised fine-tuning, a value of --tuning.
const TuneSupervised = "sft"

// Prefers is the loss of preference tuning; nil: the run is none.
func (t *Tuning) Prefers() *preference.Loss {
	if t.Data == "" {
		return nil
	}
	l, _ := preference.Mix(t.Method, t.Preference.Losses, t.Preference.Weights)
	return l
}

// Samples reports whether the model learns from answers that it samples itself.
func (t *Tuning) Samples() bool { return t.Data != "" && t.Method == policy.GRPO }

// ByRows reports whether the loss is one of rows, not a mean over tokens.
func (t *Tuning) ByRows() bool { return t.Prefers() != nil || t.Samples() }

// Sequences is how many sequences a sample has.
func (t *Tuning) Sequences() int {
	if l := t.Prefers(); l != nil && l.Paired() {
		return 2
	}
	return 1
}

// Adapter says which low-rank adapter is trained instead of the weights. Model.Adapters has what
// follows from it.
type Adapter struct {
	Folder     string // PEFT's, to start from; "": a new one
	Rank       int    // 0: as Folder says, or no adapter
	Alpha      float64
	Dropout    float64
	Targets    []string  // modules; nil: all linear layers
	Parameters []string  // weights of experts
	Saved      []string  // modules that are trained in full
	Bias       string    // of the base: which are trained; "": none
	Ranks      []Pattern // of modules by name, where another than Rank
	Alphas     []Pattern // the same of Alpha
	RSLoRA     bool
	DoRA       bool

	Quantize    string // of the weights that the adapter is on: nf4; "": they stay as they are
	DoubleQuant bool   // their scales too

	Settings json.RawMessage `json:",omitempty"` // adapter_config.json of the adapter
}

// Pattern is a number for the modules whose names end in a match of a regular expression.
type Pattern struct {
	Name  string
	Value float64
}

// Given reports whether there is an adapter.
func (a *Adapter) Given() bool { return a.Folder != "" || a.Rank > 0 }
