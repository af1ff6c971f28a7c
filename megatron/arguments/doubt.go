package arguments

import "monotron/megatron/optimizer"

// noteDoubts names what a run does that its flags allow, but that its user may not mean.
func (p *parser) noteDoubts() {
	if p.options.Partial {
		return
	}
	p.noteLongDecay()
	if c := &p.Checkpoint; p.Adapter.Given() && c.Load == "" && c.Pretrained == "" {
		p.notice("--lora-rank or --adapter is given without --load: the adapter is trained on frozen random weights")
	}
}

// noteLongDecay says so where the final decay of WSD would begin before the warm-up ends: then the rate drops in one step.
func (p *parser) noteLongDecay() {
	o := &p.Optimizer
	if o.DecayStyle != optimizer.DecayWSD {
		return
	}
	s, err := o.Schedule(p.TrainIters, p.TrainSamples, p.GlobalBatchSize)
	if err != nil { // it is reported
		return
	}
	flag, length, unit := "lr-wsd-decay-iters", o.WSDDecayIters, "steps"
	if p.TrainIters == 0 {
		flag, length, unit = "lr-wsd-decay-samples", o.WSDDecaySamples, "samples"
	}
	left := float64(s.DecaySamples) - s.WarmupSamples
	if p.TrainIters > 0 {
		left /= float64(max(1, p.GlobalBatchSize))
	}
	if float64(length) > left {
		p.notice("--%s %d is longer than the %.0f %s after the warm-up, so the decay begins during the warm-up; when the warm-up ends, the learning rate drops to the value that the decay has reached by then", flag, length, left, unit)
	}
}
