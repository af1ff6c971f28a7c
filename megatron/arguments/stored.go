package arguments

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"monotron/internal/argv"
	"monotron/megatron/arguments/table"
)

// preset takes what is still open of the model from a known one (--model).
func (p *parser) preset() {
	if !p.given("model") || p.options.PresetValues == nil {
		return
	}
	values, err := p.options.PresetValues(p.values["model"].texts[0])
	if err != nil {
		p.problem("--model: %v", err)
		p.spoil(shape...)
		return
	}
	for name, texts := range values {
		if f := table.Find(name); f != nil && f.Class == table.Works && !p.given(f.Name) {
			p.values[f.Name] = value{texts, "--model", false, ""}
		}
	}
}

// shape are the flags without any of which a command line says nothing of its model.
var shape = []string{"num-layers", "hidden-size", "num-attention-heads", "seq-length", "max-position-embeddings"}

// checkpoint takes what is still open from the arguments in a checkpoint.
func (p *parser) checkpoint() {
	loads, asked := p.given("load") || p.given("pretrained-checkpoint"), p.isOn("use-checkpoint-args")
	tuned := (p.given("finetune-data") || p.given("tuning")) && loads // a model that exists says what it is
	shapeless := loads && !slices.ContainsFunc(shape[:3], p.given)
	if asked && !loads {
		p.problem("--use-checkpoint-args needs --load or --pretrained-checkpoint")
		p.spoil("load")
		return
	}
	if !loads || p.options.CheckpointValues == nil {
		return
	}
	if !asked && !tuned && !shapeless {
		p.tellDropout()
		return
	}
	saved, err := p.savedValues()
	switch {
	case err != nil && (asked || tuned):
		p.problem("--use-checkpoint-args: %v", err)
		return
	case err != nil || saved == nil && !asked && !tuned:
		return // the flags that are missing are reported
	case saved == nil:
		p.notice("--use-checkpoint-args: %s contains no checkpoint yet, so only the flags on the command line are used", p.emptyLoad)
	}
	takes := ofTheModelAndItsTraining
	switch {
	case asked:
	case tuned:
		takes = ofTheModel
	default:
		takes = func(f *table.Flag) bool { return ofTheModel(f) || isDropout(f) }
	}
	p.takeSaved(saved, takes)
	if shapeless && !asked && !tuned {
		p.tellShape(saved)
	}
}

// takeSaved fills the flags that are still open from saved ones.
func (p *parser) takeSaved(saved map[string][]string, takes func(*table.Flag) bool) {
	own := slices.ContainsFunc(tokenizerFlags, p.given)
	for name, texts := range saved {
		f := table.Find(name)
		if own && f != nil && slices.Contains(tokenizerFlags, f.Name) {
			continue // half of one tokenizer and half of another are none
		}
		if f != nil && f.Class == table.Works && takes(f) && len(texts) > 0 && !p.given(f.Name) {
			p.values[f.Name] = value{texts, "checkpoint", false, ""}
		}
	}
}

// tellShape says which model a command line without a shape has taken.
func (p *parser) tellShape(saved map[string][]string) {
	var list []string
	for _, name := range append(slices.Clone(shape), "hidden-dropout", "attention-dropout") {
		if texts := saved[name]; len(texts) == 1 && p.values[name].source == "checkpoint" {
			list = append(list, "--"+name+" "+texts[0])
		}
	}
	p.notice("no flag sets the shape of the model, so it is taken from the checkpoint to load (%s; --print-config shows all values)", strings.Join(list, " "))
}

// tellDropout says where Megatron's default of a dropout replaces the one that a Hugging Face folder gives.
func (p *parser) tellDropout() {
	for _, from := range []string{"load", "pretrained-checkpoint"} {
		if !p.given(from) || p.given("hidden-dropout") && p.given("attention-dropout") {
			continue
		}
		folder := p.values[from].texts[0]
		if _, err := os.Stat(filepath.Join(folder, "config.json")); err != nil {
			continue // no Hugging Face folder
		}
		saved, err := p.options.CheckpointValues(folder, -1)
		if err != nil {
			continue // loading reports it
		}
		for _, name := range []string{"hidden-dropout", "attention-dropout"} {
			if otherwise := newDefault(table.Find(name)); !p.given(name) && len(saved[name]) == 1 && saved[name][0] != otherwise {
				p.notice("--%s is %s, the default of Megatron-LM, but the model in %s has %s; give the flag to choose one", name, otherwise, folder, saved[name][0])
			}
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

// ofTheModelAndItsTraining reports whether a flag says what is trained and how, and does not concern
// one process alone: where it runs, reads, writes and stops.
func ofTheModelAndItsTraining(f *table.Flag) bool {
	switch f.Owner {
	case table.Checkpoint, table.Logging, table.Own, table.Layout, table.Distributed:
		return false
	}
	return !strings.HasPrefix(f.Name, "exit-") && f.Name != "skip-train" && f.Name != "data-cache-path" && f.Name != "object-storage-cache-path"
}

// ofTheModel reports whether a flag says which model and which tokenizer a checkpoint has, and not how it was
// trained.
func ofTheModel(f *table.Flag) bool {
	switch {
	case isDropout(f):
		return false
	case strings.HasPrefix(f.To, "Raw.MTP."): // a tuning trains the decoder
		return false
	case f.Owner == table.Model || f.Owner == table.Experts || strings.HasPrefix(f.To, "Tokenizer."):
		return true
	}
	return slices.Contains([]string{"SeqLength", "VocabDivisor", "PaddedVocab"}, f.To)
}

func isDropout(f *table.Flag) bool {
	return f.To == "Model.HiddenDropout" || f.To == "Model.AttentionDropout"
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
