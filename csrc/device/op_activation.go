package device

import "monotron/csrc/device/activations"

// Activation is the MLP's non-linearity.
type Activation = activations.Activation

// width is how many elements of X make one of Y.
func width(a Activation) int64 {
	if a.Gated() {
		return 2
	}
	return 1
}

// ActivationForwardArgs: Y [rows,F] = act(X)·Weights, X [rows,F], gated [rows,2F], Weights
// f32 [rows], without them act(X). Where there are, act(X) is rounded to Y's dtype before.
// A gated act is f(min(gate, Limit))·(clamp(up, ±Limit) + Offset); without a Limit nothing is
// clamped.
//
//op:activation_forward
type ActivationForwardArgs struct {
	Y, X    Tensor `dtype:"value"`
	Weights Tensor `dtype:"f32"`
	Kind    Activation
	Limit   float32 // of gated kinds; 0: none
	Offset  float32 // of gated kinds
	_       int32
}

func (a *ActivationForwardArgs) check() bool {
	return a.Limit >= 0 && (a.Kind.Gated() || a.Limit == 0 && a.Offset == 0) && a.Y.Rank == 2 && shaped(a.X, a.Y.Shape[0], width(a.Kind)*a.Y.Last()) && optional(a.Weights, a.Y.Shape[0])
}

func (a *ActivationForwardArgs) main() Tensor { return a.X }

func (a *ActivationForwardArgs) work() Work { return streamed(a.X, a.Y, a.Weights) }

// ActivationBackwardArgs: DX (shape of X; may alias X) = DY [rows,F] · act'(X). With Weights
// f32 [rows] DY·Weights, rounded, stands for DY, and DWeights f32 [rows] = Σ over a row of
// DY·act(X), where act(X) is rounded to X's dtype: both are given or neither. DWeights may be
// [n,rows]: of each of n equal parts of a row.
//
//op:activation_backward
type ActivationBackwardArgs struct {
	DX, DY, X         Tensor `dtype:"value"`
	Weights, DWeights Tensor `dtype:"f32"`
	Kind              Activation
	Limit, Offset     float32 // as forward
	_                 int32
}

func (a *ActivationBackwardArgs) check() bool {
	return same(a.DX, a.X) && a.DY.Rank == 2 && shaped(a.X, a.DY.Shape[0], width(a.Kind)*a.DY.Last()) &&
		optional(a.Weights, a.DY.Shape[0]) && a.Weights.Given() == a.DWeights.Given() && a.parts()
}

// parts reports whether DWeights fits a row, or equal parts of it.
func (a *ActivationBackwardArgs) parts() bool {
	w := &a.DWeights
	if w.Rank != 2 {
		return optional(*w, a.DY.Shape[0])
	}
	return w.Shape[0] > 0 && a.DY.Last()%w.Shape[0] == 0 && shaped(*w, w.Shape[0], a.DY.Shape[0])
}

func (a *ActivationBackwardArgs) main() Tensor { return a.X }

func (a *ActivationBackwardArgs) work() Work {
	return streamed(a.DX, a.DY, a.X, a.Weights, a.DWeights)
}
