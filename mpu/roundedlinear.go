package mpu

import "monotron/csrc/device"

// RoundedLinear is a Linear whose operands FP8 rounds, where it is given. Its passes are collectives of the region and
// of FP8.Tokens.
type RoundedLinear struct {
	Linear
	fp8 *layerFP8
}

// NewRoundedLinear makes the layer; what c says of cuts is not used.
func NewRoundedLinear(r Region, c LinearConfig) *RoundedLinear {
	return &RoundedLinear{*NewLinear(r, c), c.FP8.layer(c.Name)}
}

func (l *RoundedLinear) operands(d *device.Device, s *device.Scope, x, dy device.Tensor) (operands, error) {
	return l.fp8.of(d, s, l.region, x, dy, []part{{weight: l.Weight}})
}

// Forward: x [rows, in] -> y [rows, out], all of one value dtype. The error is a collective's.
func (l *RoundedLinear) Forward(d *device.Device, y, x device.Tensor) error {
	s := d.Arena.Scope(device.Workspace)
	defer s.Release()
	f, err := l.operands(d, s, x, device.Tensor{})
	if err != nil {
		return err
	}
	a := device.MatmulArgs{C: y, A: f.x(x), B: f.w(l.Weight.Value), TransB: 1, ByRow: l.region.byRow(), Leaves: l.region.one()}
	if l.Bias != nil {
		a.Bias = l.Bias.Value
	}
	f.product(a)
	return nil
}

// Backward: dx [rows, in] = dy [rows, out]·W; gradients of weight and bias +=. The error is a collective's.
func (l *RoundedLinear) Backward(d *device.Device, h *Hooks, dx, dy, x device.Tensor) error {
	s := d.Arena.Scope(device.Workspace)
	defer s.Release()
	f, err := l.operands(d, s, x, dy)
	if err != nil {
		return err
	}
	f.product(device.MatmulArgs{C: dx, A: f.dy(dy), B: f.wOverOut(l.Weight.Value), Leaves: l.region.one()})
	weightGradient(d, h.leaves(), l.Weight, f.dyOverTokens(dy), f.xOverTokens(x))
	biasGradient(d, h, l.Bias, dy)
	return nil
}
