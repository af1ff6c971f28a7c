package optimizer

import (
	"fmt"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
)

// Kinds of optimizer (--optimizer).
const (
	Adam  = "adam" // AdamW: decay outside the moments
	SGD   = "sgd"
	Lion  = "lion"       // the sign of a mean of gradients
	Muon  = "muon"       // matrices by Newton-Schulz (muon.go), the rest by AdamW or Lion
	Adam8 = "adamw_8bit" // AdamW with moments of 8 bits (codes.go)

	ScheduleFree = "schedule_free_adamw" // AdamW at a point between an average and its steps (schedulefree.go)
	AdaptiveMuon = "adaptive_muon"       // Muon with second moments (adaptive.go)
)

// Decay styles of the learning rate (--lr-decay-style).
const (
	DecayConstant  = "constant"
	DecayLinear    = "linear"
	DecayCosine    = "cosine"
	DecayInvSqrt   = "inverse-square-root"
	DecayPower     = "polynomial"      // a power of the fraction that remains
	DecayRestarts  = "cosine-restarts" // several cosines, each from the peak
	DecayWSD       = "WSD"             // warm up, stay, then come down over the last part
	WSDExponential = "exponential"
	WSDLinear      = "linear"
	WSDCosine      = "cosine"
	WSDMinusSqrt   = "minus_sqrt"
)

// Config is what the optimizer, its schedules and the loss scale need. Lengths
// come in iterations or in samples, never both; 0 means not given.
type Config struct {
	Kind string

	LR, MinLR                   float64
	DecoupledLR, DecoupledMinLR float64 // of embedding and output layer; DecoupledLR 0: as the rest

	AdapterUpRatio float64 // rate of adapters' B over that of the rest (LoRA+); 0: as the rest

	AdamBeta1, AdamBeta2, AdamEps float64
	SGDMomentum                   float64
	LionBeta1, LionBeta2          float64
	// Of ScheduleFree: a step's weight in the average is a power of its number times one of the largest rate
	// so far.
	AveragePower, AverageLRPower float64
	Muon                         MuonConfig
	Addends                      Addends // of a gradient, where layouts change no bit; zero: they do

	// WidthMult is how many times the width of muP's base the model's is; 0: no muP. AdamW divides the learning
	// rate and epsilon of matrices by it, SGD multiplies the rate of everything else.
	WidthMult float64

	WeightDecay                      float64
	StartWeightDecay, EndWeightDecay float64
	WeightDecayIncrStyle             string // constant, linear, cosine
	DecayQKNorm                      bool   // weight decay also on the norms of queries and keys
	OwnClip                          bool   // parameters with OwnClip are clipped by a norm of their own

	ClipGrad float64 // global L2 norm; 0: no clipping

	DecayStyle, WSDDecayStyle       string
	DecayIters, DecaySamples        int
	WarmupIters, WarmupSamples      int
	WarmupFraction                  float64 // of the decay length; exclusive with the two above
	WarmupInit                      float64 // learning rate at sample 0 of the warm-up
	WSDDecayIters, WSDDecaySamples  int
	Power                           float64 // of DecayPower
	Cycles                          int     // of DecayRestarts
	OverrideScheduler               bool    // resume: the command line's schedule wins
	UseCheckpointScheduler          bool    // resume: the checkpoint's schedule wins
	LossScale                       float64 // constant scale; 0: dynamic with fp16, else none
	InitialLossScale, MinLossScale  float64
	LossScaleWindow, LossHysteresis int
}

// Matrices reports whether matrices are updated by Newton-Schulz, and the rest by another rule.
func (c *Config) Matrices() bool { return c.Kind == Muon || c.Kind == AdaptiveMuon }

// Indivisible names what the update of this optimizer must see complete; "": it can update any
// part of the state by itself.
func (c *Config) Indivisible() string {
	switch c.Kind {
	case Muon, AdaptiveMuon:
		return "complete matrices"
	case Adam8:
		return "complete blocks"
	case ScheduleFree:
		return "all weights before and after a step"
	}
	return ""
}

// MomentBytes is the least that the moments of an element take, on average over a large matrix.
func (c *Config) MomentBytes() float64 {
	switch {
	case c.Kind == Adam, c.Kind == ScheduleFree, c.Kind == AdaptiveMuon && c.Muon.Moment2 == MomentElements:
		return 8
	case c.Kind == Adam8:
		return 2 + 8./device.CodeBlock
	case c.Kind == SGD && c.SGDMomentum == 0:
		return 0
	}
	return 4
}

// Schedule resolves c into lengths in samples. trainIters or trainSamples is
// the complete training, globalBatch the final global batch size (iterations count
// globalBatch samples each, ramp-up or not, as in Megatron).
func (c *Config) Schedule(trainIters, trainSamples, globalBatch int) (Schedule, error) {
	// The curve is a function of samples, as in Megatron: lengths in iterations are counted in samples of the
	// final global batch size. A decay without a length lasts the training.
	s := Schedule{
		InitLR: c.WarmupInit, MaxLR: c.LR, MinLR: c.MinLR,
		Style: c.DecayStyle, WSDStyle: c.WSDDecayStyle, Power: c.Power, Cycles: c.Cycles,
		StartWD: c.StartWeightDecay, EndWD: c.EndWeightDecay, WDStyle: c.WeightDecayIncrStyle,
	}
	if s.WDStyle == DecayConstant {
		s.StartWD, s.EndWD = c.WeightDecay, c.WeightDecay
	}
	switch {
	case trainIters > 0:
		iters := c.DecayIters
		if iters == 0 {
			iters = trainIters
		}
		s.DecaySamples = int64(iters) * int64(globalBatch)
		s.WDSamples = int64(trainIters) * int64(globalBatch)
		s.WSDSamples = int64(c.WSDDecayIters) * int64(globalBatch)
		s.WarmupSamples = float64(c.WarmupIters) * float64(globalBatch)
	case trainSamples > 0:
		s.DecaySamples = int64(c.DecaySamples)
		if s.DecaySamples == 0 {
			s.DecaySamples = int64(trainSamples)
		}
		s.WDSamples = int64(trainSamples)
		s.WSDSamples = int64(c.WSDDecaySamples)
		s.WarmupSamples = float64(c.WarmupSamples)
	default:
		return s, exitcode.Errorf(exitcode.Usage, "the length of the training is missing; give --train-iters or --train-samples")
	}
	// --lr-warmup-fraction is a part of the decay's length, not of the training's.
	if c.WarmupFraction != 0 {
		s.WarmupSamples = c.WarmupFraction * float64(s.DecaySamples)
	}
	if err := s.styles(); err != nil {
		return s, err
	}
	return s, s.check()
}

func (s *Schedule) check() error {
	bad := func(format string, a ...any) error { return exitcode.With(exitcode.Usage, fmt.Errorf(format, a...)) }
	switch {
	case s.MinLR < 0 || s.MinLR > s.MaxLR:
		return bad("--min-lr must be from 0 to --lr %g, not %g", s.MaxLR, s.MinLR)
	case s.InitLR > s.MaxLR:
		return bad("--lr-warmup-init must be at most --lr %g, not %g", s.MaxLR, s.InitLR)
	case s.DecaySamples <= 0:
		return bad("the learning rate decays over %d samples; --lr-decay-iters or --lr-decay-samples must be positive", s.DecaySamples)
	case s.WarmupSamples >= float64(s.DecaySamples):
		return bad("the warm-up (%g samples) must be shorter than the decay (%d samples): lower --lr-warmup-iters or --lr-warmup-samples, or raise --lr-decay-iters or --lr-decay-samples", s.WarmupSamples, s.DecaySamples)
	case s.Style == DecayWSD && s.WSDSamples <= 0:
		return bad("--lr-decay-style WSD needs --lr-wsd-decay-iters or --lr-wsd-decay-samples")
	case s.Style == DecayPower && !(s.Power > 0):
		return bad("--lr-decay-power must be above 0, not %g", s.Power)
	case s.Style == DecayRestarts && s.Cycles < 1:
		return bad("--lr-decay-cycles must be at least 1, not %d", s.Cycles)
	case s.StartWD < 0 || s.EndWD < s.StartWD:
		return bad("--start-weight-decay %g is above --end-weight-decay %g, but weight decay cannot decrease; change one", s.StartWD, s.EndWD)
	}
	return nil
}
