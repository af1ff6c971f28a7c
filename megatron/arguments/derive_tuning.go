package arguments

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"monotron/dataset/sft"
	"monotron/megatron/arguments/table"
	"monotron/megatron/config"
)

// deriveTuning completes what --finetune-data says. The loss is averaged over the learned tokens
// of the global batch, so that no split into micro-batches or ranks changes it.
func (p *parser) deriveTuning() {
	p.deriveAdapter()
	t := &p.Tuning
	switch {
	case t.Data == "" && !p.given("tuning"):
		if !slices.ContainsFunc(policyFlags, p.given) {
			t.Policy = config.Policy{}
		}
		return
	case t.Data == "":
		p.clash("tuning finetune-data", "--tuning %s needs --finetune-data, a file of JSON lines", t.Method)
		p.spoil("finetune-data")
		t.Data = "missing" // what else is wrong is reported all the same
	}
	if p.DataloaderType == "cyclic" {
		p.clash("dataloader-type finetune-data", "--dataloader-type cyclic cannot be combined with --finetune-data, whose rows are shuffled in every epoch; leave --dataloader-type out, or add --no-data-shuffle to keep the order of the rows")
	}
	p.CalculatePerTokenLoss, p.RouterLossByLearned = true, true
	p.derivePreference()
	p.derivePolicy()
	if !p.given("hidden-dropout") { // published models of today have none
		p.Model.HiddenDropout = 0
	}
	if !p.given("attention-dropout") {
		p.Model.AttentionDropout = 0
	}
	if sft.Packs(t.Packing) {
		p.Data.ResetPositionIDs, p.Data.ResetAttentionMask = true, true
	}
	if t.EvalData != "" && !p.given("eval-iters") {
		p.FullValidation = true
	}
}

// deriveAdapter completes the flags of an adapter.
func (p *parser) deriveAdapter() {
	a := &p.Adapter
	// Without an adapter its flags are errors, unless the checkpoint gave them.
	if !a.Given() {
		for _, name := range []string{"lora-alpha", "lora-rank-pattern", "lora-alpha-pattern", "loraplus-lr-ratio", "lora-dropout", "lora-target-modules", "lora-target-parameters", "lora-modules-to-save", "lora-train-bias", "use-rslora", "use-dora", "quantize-base", "save-adapter-only"} {
			if p.given(name) && p.values[name].direct {
				p.clash(name+" lora-rank", "--%s needs --lora-rank or --adapter", name)
			}
		}
		return
	}
	// Lists may be separated by commas, as in PEFT. Alpha equal to the rank makes the scale 1.
	for _, list := range []*[]string{&a.Targets, &a.Parameters, &a.Saved} {
		var names []string
		for _, text := range *list {
			names = append(names, strings.FieldsFunc(text, func(c rune) bool { return c == ',' || c == ' ' })...)
		}
		*list = names
	}
	if a.Alpha == 0 {
		a.Alpha = float64(a.Rank)
	}
	a.Ranks, a.Alphas = p.patterns("lora-rank-pattern", p.Raw.RankPattern), p.patterns("lora-alpha-pattern", p.Raw.AlphaPattern)
	// Combinations that are not supported, and flags that need another.
	p.refuseIf(p.Optimizer.AdapterUpRatio > 0 && p.Optimizer.DecoupledLR > 0, "loraplus-lr-ratio decoupled-lr", "--loraplus-lr-ratio cannot be combined with --decoupled-lr; leave one out")
	p.refuseIf(p.Optimizer.AdapterUpRatio > 0 && p.Optimizer.Matrices(), "loraplus-lr-ratio optimizer", "--loraplus-lr-ratio cannot be combined with --optimizer %s; use --optimizer adam", p.Optimizer.Kind)
	p.refuseIf(a.DoubleQuant && a.Quantize != "nf4", "double-quant quantize-base", "--double-quant needs --quantize-base nf4")
	p.refuseIf(a.Quantize != "" && p.Checkpoint.Load == "" && p.Checkpoint.Pretrained == "" && !p.options.Partial, "quantize-base load", "--quantize-base needs --load or --pretrained-checkpoint, the checkpoint whose weights are quantized")
	p.refuseIf(p.Checkpoint.AdapterOnly && p.Checkpoint.Load == "" && p.Checkpoint.Pretrained == "" && !p.options.Partial, "save-adapter-only load", "--save-adapter-only needs --load or --pretrained-checkpoint, because a resumed run reads the base model's weights from that checkpoint again")
	p.refuseIf(p.Layout.MemoryCentricTiling > 0, "memory-centric-tiling lora-rank", "--memory-centric-tiling cannot be combined with an adapter; leave one out")
	p.refuseIf(a.DoRA && (p.Raw.EnableGraph || p.Raw.GraphImpl != table.GraphsOff), "use-dora cuda-graph-impl", "--use-dora cannot be combined with --cuda-graph-impl, because DoRA copies norms to the host in every forward pass; leave --cuda-graph-impl out")
	p.refuseIf(p.Checkpoint.Format != "" && p.Checkpoint.Format != "native" && p.Checkpoint.Save != "", "ckpt-format lora-rank", "--ckpt-format %s cannot be combined with an adapter, which the format cannot store; leave --ckpt-format out, and convert the result", p.Checkpoint.Format)
}

// patterns reads NAME=NUMBER pairs.
func (p *parser) patterns(flag string, words []string) (list []config.Pattern) {
	for _, word := range words {
		at := strings.LastIndexByte(word, '=')
		value, err := strconv.ParseFloat(word[at+1:], 64)
		if at < 1 || err != nil || !(value > 0 && value <= 1<<16) {
			p.clash(flag, "--%s %s: write NAME=NUMBER, where the number is above 0 and at most 65536", flag, word)
			continue
		}
		if _, err := regexp.Compile(word[:at]); err != nil {
			p.clash(flag, "--%s %s: %v", flag, word, err)
			continue
		}
		list = append(list, config.Pattern{Name: word[:at], Value: value})
	}
	return list
}
