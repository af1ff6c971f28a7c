package config

import "encoding/json"

// Tuning says which rows a model is tuned on, and how. Data is "" where the run is no tuning.
type Tuning struct {
	Method       string // TuneSupervised, also where empty
	Data         string // file of JSON lines
	EvalData     string // of validation; "": none
	ChatTemplate string // file; "": the tokenizer's
	Packing      string // see dataset/sft
	LearnPrompts bool   // the loss learns prompts too
	NoShuffle    bool   // rows in the order of the file, again from the first at its end
}

// TuneSupervised is supervised fine-tuning, a value of --tuning.
const TuneSupervised = "sft"

// Adapter says which low-rank adapter is trained instead of the weights. Model.Adapters has what
// follows from it.
type Adapter struct {
	Folder  string // PEFT's, to start from; "": a new one
	Rank    int    // 0: as Folder says, or no adapter
	Alpha   float64
	Dropout float64
	Targets []string // modules; nil: all linear layers
	RSLoRA  bool
	DoRA    bool

	Quantize    string // of the weights that the adapter is on: nf4; "": they stay as they are
	DoubleQuant bool   // their scales too

	Settings json.RawMessage `json:",omitempty"` // adapter_config.json of the adapter
}

// Given tells whether there is an adapter.
func (a *Adapter) Given() bool { return a.Folder != "" || a.Rank > 0 }
