package optimizer

// Scaler holds the factor that the loss is multiplied with before backward, so
// that small fp16 gradients do not vanish. A constant scaler never changes. A
// dynamic one halves the scale when gradients overflow and doubles it after a
// long clean stretch. Source: megatron/core/optimizer/grad_scaler.py.
type Scaler struct {
	ScalerState
	dynamic    bool
	min        float64
	window     int // clean steps until the scale doubles
	hysteresis int // the overflow after a growth, or a start, that lowers the scale: 2 forgives one
}

// ScalerState is what a checkpoint keeps; the JSON names are Megatron's.
type ScalerState struct {
	Value      float64 `json:"scale"`
	Growth     int     `json:"growth_tracker"`     // clean steps since the last change or overflow
	Hysteresis int     `json:"hysteresis_tracker"` // continues below 0
}

// NewScaler is a dynamic scaler with fp16, unless --loss-scale is given; without
// fp16 the scale is --loss-scale or 1.
func NewScaler(c *Config, fp16 bool) *Scaler {
	s := &Scaler{min: c.MinLossScale, window: c.LossScaleWindow, hysteresis: c.LossHysteresis}
	switch {
	case c.LossScale != 0:
		s.Value = c.LossScale
	case fp16:
		s.dynamic = true
		s.Value = c.InitialLossScale
	default:
		s.Value = 1
	}
	s.Hysteresis = s.hysteresis
	return s
}

// Scale is the factor of the next step.
func (s *Scaler) Scale() float64 { return s.Value }

// Dynamic reports whether Update can change the scale.
func (s *Scaler) Dynamic() bool { return s.dynamic }

// Update is called once per iteration and halves or doubles the scale. overflow: a
// gradient on some rank was not finite, and the step was skipped.
func (s *Scaler) Update(overflow bool) {
	if !s.dynamic {
		return
	}
	if overflow {
		s.Growth = 0
		s.Hysteresis--
		if s.Hysteresis <= 0 {
			s.Value = max(s.Value*0.5, s.min)
		}
		return
	}
	s.Growth++
	if s.Growth == s.window {
		s.Growth = 0
		s.Hysteresis = s.hysteresis
		s.Value *= 2
	}
}

// State is the scaler's state for a checkpoint.
func (s *Scaler) State() ScalerState { return s.ScalerState }

// Load continues from a checkpoint's state; a constant scaler keeps its own.
func (s *Scaler) Load(st ScalerState) {
	if s.dynamic {
		s.ScalerState = st
	}
}
