package config

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
