package arguments

import (
	"fmt"
	"slices"
	"strings"

	"monotron/internal/argv"
	"monotron/megatron/arguments/table"
)

// checkpoint takes what is still open from the arguments in a checkpoint.
func (p *parser) checkpoint() {
	tuned := p.given("finetune-data") && (p.given("load") || p.given("pretrained-checkpoint")) // a model that exists says what it is
	if !p.isOn("use-checkpoint-args") && !tuned {
		return
	}
	if !p.given("load") && !p.given("pretrained-checkpoint") {
		p.problem("--use-checkpoint-args needs --load or --pretrained-checkpoint")
		p.spoil("load")
		return
	}
	if p.options.CheckpointValues == nil {
		return
	}
	saved, err := p.savedValues()
	if err != nil {
		p.problem("--use-checkpoint-args: %v", err)
		return
	}
	if saved == nil {
		p.notice("--use-checkpoint-args: %s contains no checkpoint yet; only the command line is used", p.emptyLoad)
	}
	takes := ofTheModelAndItsTraining
	if !p.isOn("use-checkpoint-args") {
		takes = ofTheModel
	}
	own := slices.ContainsFunc(tokenizerFlags, p.given)
	for name, texts := range saved {
		f := table.Find(name)
		if own && f != nil && slices.Contains(tokenizerFlags, f.Name) {
			continue // half of one tokenizer and half of another are none
		}
		if f != nil && f.Class == table.Works && takes(f) && len(texts) > 0 && !p.given(f.Name) {
			p.values[f.Name] = value{texts, "checkpoint", false}
		}
	}
}

// tokenizerFlags say together which tokenizer it is.
var tokenizerFlags = []string{"tokenizer-type", "tokenizer-model", "vocab-file", "merge-file"}

// savedValues are those of --load, or while that holds nothing of
// --pretrained-checkpoint; nil where there is neither.
func (p *parser) savedValues() (saved map[string][]string, err error) {
	if p.given("load") {
		step := int64(-1)
		if p.given("ckpt-step") {
			if n, ok := argv.Int(p.values["ckpt-step"].texts[0]); ok && n > 0 {
				step = n
			}
		}
		p.emptyLoad = p.values["load"].texts[0]
		saved, err = p.options.CheckpointValues(p.emptyLoad, step)
	}
	if saved == nil && err == nil && p.given("pretrained-checkpoint") {
		p.emptyLoad = p.values["pretrained-checkpoint"].texts[0]
		saved, err = p.options.CheckpointValues(p.emptyLoad, -1)
	}
	if saved != nil {
		p.emptyLoad = ""
	}
	return saved, err
}

// ofTheModelAndItsTraining tells flags that say what is trained and how from
// those that concern one process: where it runs, reads, writes and stops.
func ofTheModelAndItsTraining(f *table.Flag) bool {
	switch f.Owner {
	case table.Checkpoint, table.Logging, table.Own, table.Layout, table.Distributed:
		return false
	}
	return !strings.HasPrefix(f.Name, "exit-") && f.Name != "skip-train" && f.Name != "data-cache-path" && f.Name != "object-storage-cache-path"
}

// ofTheModel tells flags that say which model and which tokenizer a checkpoint has from those of
// how it was trained.
func ofTheModel(f *table.Flag) bool {
	switch {
	case f.To == "Model.HiddenDropout" || f.To == "Model.AttentionDropout":
		return false
	case strings.HasPrefix(f.To, "Raw.MTP."): // a tuning trains the decoder
		return false
	case f.Owner == table.Model || f.Owner == table.Experts || strings.HasPrefix(f.To, "Tokenizer."):
		return true
	}
	return slices.Contains([]string{"SeqLength", "VocabDivisor", "PaddedVocab"}, f.To)
}

// said is what was given, for the next --use-checkpoint-args.
func (p *parser) said() map[string][]string {
	all := map[string][]string{}
	for name, v := range p.values {
		f := table.Find(name)
		switch {
		case f.Class != table.Works || !ofTheModelAndItsTraining(f):
		case f.Kind == table.Switch:
			all[name] = []string{fmt.Sprint(p.isOn(name))}
		default:
			all[name] = v.texts
		}
	}
	return all
}
