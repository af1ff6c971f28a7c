package doctor

import (
	"fmt"
	"strings"
	"time"

	"monotron/csrc/device"
)

// Speed is one device: what does its work, or why it cannot be opened, and its
// matrix product in GFLOP/s.
type Speed struct {
	Name  string             `json:"name"`
	Uses  string             `json:"uses,omitempty"`
	Error string             `json:"error,omitempty"`
	Speed map[string]float64 `json:"gflops,omitempty"` // by dtype
	Side  int64              `json:"matrix_side,omitempty"`
}

// A probe is short: a look, not a benchmark (that is `monotron bench`).
const probeTime = 100 * time.Millisecond

func measure(name string, open func(string) (*device.Device, error)) Speed {
	s := Speed{Name: name}
	d, err := open(name)
	if err != nil {
		s.Error = err.Error()
		return s
	}
	defer d.Close()
	s.Uses, s.Side, s.Speed = d.Describe(), 1024, map[string]float64{}
	if name == "ref" {
		s.Side = 128 // plain Go: 1024 would take seconds
	}
	for _, dtype := range []device.DType{device.F32, device.BF16} {
		flops, err := matmulSpeed(d, dtype, s.Side)
		if err != nil {
			s.Error = fmt.Sprintf("opens, but a product of %s matrices failed: %v", dtype, err)
			return s
		}
		s.Speed[dtype.String()] = flops / 1e9
	}
	return s
}

// matmulSpeed is the best of the products of side x side matrices that fit into
// probeTime, in operations a second; the first one warms up.
func matmulSpeed(d *device.Device, dtype device.DType, side int64) (speed float64, err error) {
	defer device.CatchOutOfMemory(&err)
	scope := d.Arena.Scope(device.Workspace)
	defer scope.Release()
	args := device.MatmulArgs{A: scope.Alloc(dtype, side, side), B: scope.Alloc(dtype, side, side), C: scope.Alloc(dtype, side, side)}
	d.Fill(args.A, 0.5)
	d.Fill(args.B, 0.25)
	best := time.Duration(0)
	for end := time.Now().Add(probeTime); best == 0 || time.Now().Before(end); {
		start := time.Now()
		d.Matmul(args)
		if err := d.Sync(); err != nil {
			return 0, err
		}
		if took := time.Since(start); best == 0 || took < best {
			best = took
		}
	}
	return 2 * float64(side) * float64(side) * float64(side) / best.Seconds(), nil
}

func (s Speed) state() State {
	if s.Error != "" {
		return Missing
	}
	return OK
}

func (s Speed) text() string {
	if s.Error != "" {
		return s.Error
	}
	var speeds []string
	for _, dtype := range []device.DType{device.F32, device.BF16} {
		speeds = append(speeds, fmt.Sprintf("%.3g GFLOP/s in %s", s.Speed[dtype.String()], dtype))
	}
	return fmt.Sprintf("%s; %s (%d x %d matrices)", s.Uses, strings.Join(speeds, ", "), s.Side, s.Side)
}
