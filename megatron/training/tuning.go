package training

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"

	"monotron/dataset"
	"monotron/dataset/sft"
	"monotron/megatron/checkpoint/native"
	"monotron/megatron/config"
	"monotron/megatron/preference"
	"monotron/megatron/spec"
	"monotron/tokenizer"
	"monotron/tokenizer/chat"
)

// TuningConfig says how rows become samples of a run.
func TuningConfig(c *config.Run, tok tokenizer.Tokenizer) (s sft.Config, err error) {
	t := &c.Tuning
	s = sft.Config{Length: c.SeqLength, Packing: t.Packing, LearnPrompts: t.LearnPrompts, Shuffle: !t.NoShuffle, Seed: uint64(c.Seed), EndID: int32(tok.EOD())}
	var source chat.Source
	if t.ChatTemplate != "" {
		if source.Text, err = chat.ReadFile(t.ChatTemplate); err != nil {
			return s, fmt.Errorf("--chat-template: %w", err)
		}
	}
	if _, err := os.Stat(c.Tokenizer.File()); err == nil {
		if err := source.ReadFolder(c.Tokenizer.File()); err != nil {
			return s, err
		}
	}
	if s.EOS = source.EOS; source.Text != "" {
		if s.Template, err = chat.New(source); err != nil {
			return s, err
		}
	}
	if c.Tuning.Prefers() != nil {
		s.Rule, s.Block = ruleOf(c.Tuning.Method), c.GlobalBatchSize
	}
	s.NeedsAnswer = t.Samples() && t.Policy.Exact
	s.BOSID, s.EOSID = tokenOf(tok, source.BOS, -1), tokenOf(tok, source.EOS, s.EndID)
	return s, nil
}

// ruleOf is how rows become tokens for a method of preference tuning.
func ruleOf(method string) sft.Rule {
	switch method {
	case preference.ORPO, preference.SimPO:
		return sft.RuleORPO
	case preference.KTO:
		return sft.RuleKTO
	}
	return sft.RuleDPO
}

// tokenOf is the id of a special token, otherwise where the tokenizer has none of that text.
func tokenOf(tok tokenizer.Tokenizer, text string, otherwise int32) int32 {
	if ids, err := tokenizer.AppendPlain(tok, nil, text); err == nil && len(ids) == 1 {
		return ids[0]
	}
	return otherwise
}

// tuningData opens the rows of --finetune-data and --finetune-eval-data.
func tuningData(c *config.Run, tok tokenizer.Tokenizer) (sets [3]dataset.Dataset, err error) {
	// Rows of the kind that the tuning learns from.
	s, err := TuningConfig(c, tok)
	if err != nil {
		return sets, err
	}
	if c.Tuning.Prefers() != nil {
		return preferenceData(c, tok, s)
	}
	if c.Tuning.Samples() {
		return promptData(c, tok, s)
	}
	// Documents with labels; training goes over them again and again.
	train, err := sft.New(c.Tuning.Data, tok, s)
	if err != nil {
		return sets, fmt.Errorf("--finetune-data: %w", err)
	}
	sets[dataset.Train] = sft.Epochs(train, s)
	tellRows(c, c.Tuning.Data, train, tok)
	if c.Tuning.EvalData == "" {
		return sets, nil
	}
	valid, err := sft.New(c.Tuning.EvalData, tok, s)
	if err != nil {
		return sets, fmt.Errorf("--finetune-eval-data: %w", err)
	}
	sets[dataset.Valid] = valid
	tellRows(c, c.Tuning.EvalData, valid, tok)
	return sets, nil
}

// tellRows says what became of a file's rows, and what the first one's answer ends with: a model
// that does not learn where to stop does not stop.
func tellRows(c *config.Run, path string, set *sft.Set, tok tokenizer.Tokenizer) {
	if c.Data.Notice == nil {
		return
	}
	n := set.Counts
	c.Data.Notice(fmt.Sprintf("%s: %d rows make %d samples; %d of %d tokens are learned; %d rows are truncated at --seq-length %d, and %d rows without learned tokens are dropped; the last learned token of the first row is %q",
		path, n.Rows, set.Len(), n.Learned, n.Tokens, n.Truncated, c.SeqLength, n.Dropped, tok.Decode(set.Documents(0)[0].Last())))
	tellUnused(c, path, &n)
}

// tellUnused says which fields of a file's rows are not read.
func tellUnused(c *config.Run, path string, n *sft.Counts) {
	for _, line := range n.UnusedText() {
		c.Data.Notice(path + ": " + line)
	}
}

// begins reports whether a tuning starts from the checkpoint in dir instead of continuing it:
// the run that wrote it tuned nothing, or something else.
func (r *Run) begins(dir string, step int64) bool {
	c := &r.Config
	if c.Tuning.Data == "" || dir == c.Checkpoint.Save {
		return false
	}
	if foreign(dir, step) != "" {
		return true
	}
	before, err := storedRun(dir, step)
	if err != nil {
		return false // loading says what is wrong
	}
	return before.Tuning.Data != c.Tuning.Data || methodOf(&before.Tuning) != methodOf(&c.Tuning) || len(before.Model.Adapters) == 0 && len(c.Model.Adapters) > 0
}

// methodOf is the method of a tuning.
func methodOf(t *config.Tuning) string { return cmp.Or(t.Method, config.TuneSupervised) }

// stored is the part of a native checkpoint's settings that tuning asks for.
type stored struct {
	Model   spec.Model
	Tuning  config.Tuning
	Adapter config.Adapter
}

func storedRun(dir string, step int64) (s stored, err error) {
	f, err := native.OpenSound(dir, step)
	if err != nil {
		return s, err
	}
	defer f.Close()
	return s, json.Unmarshal(f.Manifest.State.Config, &s)
}
