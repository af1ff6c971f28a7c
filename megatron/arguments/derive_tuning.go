package arguments

import "monotron/dataset/sft"

// deriveTuning completes what --finetune-data says. The loss is averaged over the learned tokens
// of the global batch, so that no split into micro-batches or ranks changes it.
func (p *parser) deriveTuning() {
	t := &p.Tuning
	if t.Data == "" {
		if p.given("tuning") {
			p.clash("tuning finetune-data", "--tuning %s needs --finetune-data; name a file of JSON lines", t.Method)
		}
		return
	}
	if p.DataloaderType == "cyclic" {
		p.clash("dataloader-type finetune-data", "--dataloader-type cyclic does not go with --finetune-data, whose rows are shuffled in every epoch; leave it out, or add --no-data-shuffle to keep their order")
	}
	p.CalculatePerTokenLoss = true
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
