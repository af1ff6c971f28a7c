package devicetest

import (
	"fmt"

	"monotron/csrc/device"
)

type dropoutOptions struct {
	rate, jitter      float32
	position, channel int32
	bias, residual    bool
	alias             string // what Out is: "", "x" or "residual"
	pad               int64
}

func (o dropoutOptions) String() string {
	s := fmt.Sprintf("rate %g", o.rate)
	if o.jitter > 0 {
		s = fmt.Sprintf("jitter %g", o.jitter)
	}
	if o.position+o.channel > 0 {
		s += fmt.Sprintf(" from %d,%d", o.position, o.channel)
	}
	for _, f := range []struct {
		on   bool
		name string
	}{{o.bias, "bias"}, {o.residual, "residual"}, {o.alias != "", "into " + o.alias}, {o.pad > 0, "strided"}} {
		if f.on {
			s += " " + f.name
		}
	}
	return s
}

// dropout is a mask of b samples with numbers far apart; rate 0 names nothing.
func (e *Env) dropout(rate float32, b int64, position, channel int32) device.Dropout {
	return e.drawn(dropoutOptions{rate: rate, position: position, channel: channel}, b)
}

// drawn is dropout, or jitter.
func (e *Env) drawn(o dropoutOptions, b int64) device.Dropout {
	if o.rate == 0 && o.jitter == 0 {
		return device.Dropout{}
	}
	return device.Dropout{
		Stream: e.word(), Step: e.List("step", device.I64, 1234567), Rate: o.rate, Jitter: o.jitter, Position: o.position, Channel: o.channel,
		Samples: e.Make("samples", device.I32, func(i int) float64 { return float64(7 + 100000*i) }, b),
	}
}

var dropoutVariants = []dropoutOptions{
	{rate: 0.1}, {rate: 0.5, position: 70, channel: 5}, {rate: 0.25, channel: 64, pad: 3}, {bias: true, residual: true},
	{rate: 0.1, bias: true, residual: true}, {rate: 0.1, residual: true, alias: "residual"}, {rate: 0.3, bias: true, alias: "x"},
	{jitter: 0.01}, {jitter: 0.5, position: 70, channel: 5, pad: 3}, {jitter: 0.2, bias: true, residual: true},
}

func dropoutCases() []Case {
	var cases []Case
	for _, d := range valueTypes {
		for _, s := range [][3]int64{{1, 1, 1}, {0, 2, 8}, {1, 3, 5}, {17, 2, 64}, {5, 3, 129}, {33, 1, 63}, {30, 3, 1000}} {
			for _, o := range dropoutVariants {
				cases = append(cases, dropoutAddCase(d, s[0], s[1], s[2], o))
				if !o.bias && !o.residual {
					cases = append(cases, dropoutBackwardCase(d, s[0], s[1], s[2], o))
				}
			}
		}
	}
	return cases
}

func dropoutAddCase(d device.DType, positions, b, h int64, o dropoutOptions) Case {
	setup := func(e *Env) func() {
		// X, Out, residual: [positions·b, h]; bias: [h]. Without bias and residual a dropped value is exactly 0.
		a := device.DropoutAddArgs{Drop: e.drawn(o, b)}
		t := tol(d, 1, 4)
		if !o.bias && !o.residual {
			t = t.masked()
		}
		wide := []int64{positions * b, h + o.pad}
		a.X = narrow(e.In("X", d, wide...), o.pad)
		if o.bias {
			a.Bias = e.In("bias", d, h)
		}
		if o.residual {
			a.Residual = narrow(e.In("residual", d, wide...), o.pad)
		}
		// The result may overwrite an input.
		switch o.alias {
		case "x":
			a.Out = e.Changes(a.X, t)
		case "residual":
			a.Out = e.Changes(a.Residual, t)
		default:
			a.Out = narrow(e.Out("Out", t, d, wide...), o.pad)
		}
		return func() { e.Dev.DropoutAdd(a) }
	}
	streams := 2.0
	if o.residual {
		streams++
	}
	return Case{device.OpDropoutAdd, dropoutName(d, positions, b, h, o), setup, Work{Bytes: streams * float64(positions*b*h*d.Size())}}
}

func dropoutBackwardCase(d device.DType, positions, b, h int64, o dropoutOptions) Case {
	setup := func(e *Env) func() {
		a := device.DropoutBackwardArgs{Drop: e.drawn(o, b)}
		a.DY = narrow(e.In("DY", d, positions*b, h+o.pad), o.pad)
		a.DX = narrow(e.Out("DX", tol(d, 1, 4).masked(), d, positions*b, h+o.pad), o.pad)
		return func() { e.Dev.DropoutBackward(a) }
	}
	return Case{device.OpDropoutBackward, dropoutName(d, positions, b, h, o), setup, Work{Bytes: 2 * float64(positions*b*h*d.Size())}}
}

func dropoutName(d device.DType, positions, b, h int64, o dropoutOptions) string {
	return fmt.Sprintf("%s %dx%dx%d %s", d, positions, b, h, o)
}
