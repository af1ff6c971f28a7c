package telemetry

import (
	"fmt"
	"strings"
)

// Curve is a number of a step under the name that Megatron gives it in TensorBoard and wandb.
type Curve struct {
	Tag     string
	Value   float64
	Samples bool // Megatron draws it over samples too
}

// CurveOptions say which numbers Curves gives, in addition to those it always gives.
type CurveOptions struct {
	Throughput    bool
	LossScale     bool
	Ranks         bool // "world-size"
	Memory        bool // all of it, not only the peak
	Perplexity    bool // of evaluations
	MixtureLayers bool // balancing losses of each layer of experts
}

// AllCurves are every number there is.
var AllCurves = CurveOptions{Throughput: true, LossScale: true, Ranks: true, Memory: true, Perplexity: true, MixtureLayers: true}

// curves gathers a list.
type curves []Curve

func (c *curves) add(tag string, value float64)  { *c = append(*c, Curve{Tag: tag, Value: value}) }
func (c *curves) both(tag string, value float64) { *c = append(*c, Curve{tag, value, true}) }

func (c *curves) maybe(tag string, value *float64) {
	if value != nil {
		c.both(tag, *value)
	}
}

// Curves are the numbers of a training step or evaluation (training_log in
// megatron/training/training.py); those that Megatron lacks are named in its manner. A test
// set has none.
func Curves(s *Step, o CurveOptions) []Curve {
	var c curves
	switch s.Split {
	case "":
		c.training(s, o)
	case Validation, Train:
		c.evaluation(s, o)
	}
	return c
}

func (c *curves) training(s *Step, o CurveOptions) {
	// Names and order are Megatron-LM's; both: over iterations and over samples.
	c.both("learning-rate", s.NextLearningRate)
	if s.SkippedSamples > 0 {
		c.add("skipped-train-samples", float64(s.SkippedSamples))
	}
	c.both("batch-size", float64(s.GlobalBatchSize))
	for _, loss := range s.Losses {
		c.both(loss.Name, loss.Value)
	}
	for _, v := range s.Preference {
		c.both(s.tag(v.Name), v.Value)
	}
	if o.LossScale {
		c.both("loss-scale", s.NextLossScale)
	}
	if o.Ranks {
		c.both("world-size", float64(s.Ranks))
	}
	// What a skipped step has no value of.
	c.maybe("grad-norm", s.GradNorm)
	c.maybe("grad-norm-mtp", s.MTPGradNorm)
	c.maybe("num-zeros", s.NumZeros)
	c.maybe("params-norm", s.ParamsNorm)
	for _, loss := range s.MoE {
		c.add(loss.Name, loss.Value)
	}
	if o.MixtureLayers {
		c.mixtures(s)
	}
	c.pace(s, o)
}

// pace is how fast a step was, and its memory.
func (c *curves) pace(s *Step, o CurveOptions) {
	c.add("iteration-time", s.Elapsed.Seconds())
	if s.Elapsed > 0 {
		c.add("tokens-per-second", s.perSecond(s.Tokens))
	}
	if mfu := s.MFU(); mfu > 0 {
		c.add("mfu", mfu)
	}
	if o.Throughput {
		c.add("throughput", s.TFLOPs())
	}
	c.add("mem-max-allocated-bytes", float64(s.Memory.MaxAllocated))
	if o.Memory {
		c.add("mem-reserved-bytes", float64(s.Memory.Reserved))
		c.add("mem-allocated-bytes", float64(s.Memory.Allocated))
		c.add("mem-allocated-count", float64(s.Memory.Allocations))
	}
}

// mixtures are the losses of each layer of experts.
func (c *curves) mixtures(s *Step) {
	for _, layer := range s.MoELayers {
		for _, loss := range layer.Losses {
			c.add(fmt.Sprintf("moe/%s_layer_%d", loss.Name, layer.Number), loss.Value)
		}
	}
}

// evaluation are the losses of one, and their perplexities where asked for.
func (c *curves) evaluation(s *Step, o CurveOptions) {
	for _, v := range s.Preference {
		c.add(s.tag(v.Name)+" validation", v.Value)
	}
	for _, loss := range s.Losses {
		tag := loss.Name + " validation"
		if s.Split == Train {
			tag = loss.Name + " train estimate"
		}
		c.both(tag, loss.Value)
		if o.Perplexity && len(s.Preference) == 0 {
			c.both(tag+" ppl", Perplexity(loss.Value))
		}
	}
	if s.BitsPerByte != nil && s.Split == Validation {
		c.add("bits-per-byte validation", *s.BitsPerByte)
	}
	if s.Accuracy != nil && s.Split == Validation {
		c.add("token-accuracy validation", *s.Accuracy)
	}
}

// tag is a number's name among Megatron's, or TRL's own where it is one of rewards.
func (s *Step) tag(name string) string {
	if s.rewarded() {
		return name
	}
	return strings.ReplaceAll(name, "_", "-")
}
