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

// ActivationForwardArgs: Y [rows,F] = act(X), X [rows,F], gated [rows,2F].
//
//op:activation_forward
type ActivationForwardArgs struct {
	Y, X Tensor `dtype:"value"`
	Kind Activation
	_    int32
}

func (a *ActivationForwardArgs) check() bool {
	return a.Y.Rank == 2 && shaped(a.X, a.Y.Shape[0], width(a.Kind)*a.Y.Last())
}

func (a *ActivationForwardArgs) main() Tensor { return a.X }

func (a *ActivationForwardArgs) work() Work { return streamed(a.X, a.Y) }

// ActivationBackwardArgs: DX (shape of X; may alias X) = DY [rows,F] · act'(X).
//
//op:activation_backward
type ActivationBackwardArgs struct {
	DX, DY, X Tensor `dtype:"value"`
	Kind      Activation
	_         int32
}

func (a *ActivationBackwardArgs) check() bool {
	return same(a.DX, a.X) && a.DY.Rank == 2 && shaped(a.X, a.DY.Shape[0], width(a.Kind)*a.DY.Last())
}

func (a *ActivationBackwardArgs) main() Tensor { return a.X }

func (a *ActivationBackwardArgs) work() Work { return streamed(a.DX, a.DY, a.X) }
