package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"monotron/csrc/device"
)

// Speed is one device: what does its work, or why it cannot be opened, and its
// matrix product in GFLOP/s: the median of several probes, and their spread.
type Speed struct {
	Name  string             `json:"name"`
	Uses  string             `json:"uses,omitempty"`
	Error string             `json:"error,omitempty"`
	Speed map[string]float64 `json:"gflops,omitempty"` // by dtype
	Low   map[string]float64 `json:"gflops_low,omitempty"`
	High  map[string]float64 `json:"gflops_high,omitempty"`
	Side  int64              `json:"matrix_side,omitempty"`
}

// Probes are short, and apart from each other, as other programs take the processor at times;
// `monotron bench` measures longer.
const (
	probes    = 5
	probeTime = 40 * time.Millisecond
	probeRest = 60 * time.Millisecond
	unsteady  = 1.3 // times that the fastest probe is faster than the slowest, from which on the machine is called busy
)

func measure(name string, open func(string) (*device.Device, error)) Speed {
	s := Speed{Name: name}
	d, err := open(name)
	if err != nil {
		s.Error = err.Error()
		return s
	}
	defer d.Close()
	s.Uses, s.Side, s.Speed = d.Describe(), 1024, map[string]float64{}
	s.Low, s.High = map[string]float64{}, map[string]float64{}
	if name == "ref" {
		s.Side = 128 // plain Go: 1024 would take seconds
	}
	for _, dtype := range []device.DType{device.F32, device.BF16} {
		list, err := probe(d, dtype, s.Side)
		if err != nil {
			s.Error = fmt.Sprintf("can be opened, but a product of %s matrices failed: %v", dtype, err)
			return s
		}
		s.Low[dtype.String()], s.Speed[dtype.String()], s.High[dtype.String()] = list[0]/1e9, list[len(list)/2]/1e9, list[len(list)-1]/1e9
	}
	return s
}

// probe measures several times; the speeds rise.
func probe(d *device.Device, dtype device.DType, side int64) (speeds []float64, err error) {
	for i := range probes {
		if i > 0 {
			time.Sleep(probeRest)
		}
		speed, err := matmulSpeed(d, dtype, side)
		if err != nil {
			return nil, err
		}
		speeds = append(speeds, speed)
	}
	slices.Sort(speeds)
	return speeds, nil
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
	busy := ""
	for _, dtype := range []device.DType{device.F32, device.BF16} {
		name := dtype.String()
		speeds = append(speeds, fmt.Sprintf("%.3g GFLOP/s in %s (%.3g to %.3g)", s.Speed[name], name, s.Low[name], s.High[name]))
		if s.High[name] > unsteady*s.Low[name] {
			busy = "; the probes differ by much, so other programs use this machine"
		}
	}
	return fmt.Sprintf("%s; %s, median of %d probes (%d x %d matrices)%s", s.Uses, strings.Join(speeds, ", "), probes, s.Side, s.Side, busy)
}
