package gpus

import (
	"fmt"
	"slices"
	"strings"
)

// A GPU as it was at one moment.
type GPU struct {
	Index       int      `json:"index"` // NVML's, in PCI order
	Name        string   `json:"name"`
	UUID        string   `json:"uuid"`
	Capability  string   `json:"capability"`  // compute capability, "9.0"
	Memory      uint64   `json:"memory"`      // bytes
	Free        uint64   `json:"free"`        // bytes
	Temperature int      `json:"temperature"` // degrees Celsius
	Clock       int      `json:"clock"`       // of the multiprocessors, MHz
	MaxClock    int      `json:"max_clock"`   // MHz
	Slowed      []string `json:"slowed,omitempty"`
	Corrected   uint64   `json:"ecc_corrected"` // memory errors since the driver was loaded
	Uncorrected uint64   `json:"ecc_uncorrected"`
}

// Survey is the state of a host's GPUs at one time.
type Survey struct {
	Driver string `json:"driver"` // "580.82.07"
	CUDA   string `json:"cuda"`   // newest CUDA that the driver runs, "13.0"
	GPUs   []GPU  `json:"gpus"`
}

// String is a line for a person.
func (g GPU) String() string {
	const gib = 1 << 30
	s := fmt.Sprintf("GPU %d: %s (sm_%s), %.1f of %.1f GiB free, %d of %d MHz, %d C", g.Index, g.Name, strings.ReplaceAll(g.Capability, ".", ""),
		float64(g.Free)/gib, float64(g.Memory)/gib, g.Clock, g.MaxClock, g.Temperature)
	if len(g.Slowed) > 0 {
		s += "; slowed by " + strings.Join(g.Slowed, ", ")
	}
	if g.Uncorrected > 0 {
		s += fmt.Sprintf("; %d uncorrected memory errors: reset or replace it", g.Uncorrected)
	}
	return s
}

// Changes are lines on what grew worse, or well again, since an earlier survey:
// for the log of a long run.
func (s Survey) Changes(before Survey) []string {
	var lines []string
	for _, g := range s.GPUs {
		at := slices.IndexFunc(before.GPUs, func(b GPU) bool { return b.UUID == g.UUID })
		if at < 0 {
			lines = append(lines, fmt.Sprintf("GPU %d (%s) appeared", g.Index, g.UUID))
			continue
		}
		lines = append(lines, g.changes(before.GPUs[at])...)
	}
	for _, b := range before.GPUs {
		if !slices.ContainsFunc(s.GPUs, func(g GPU) bool { return g.UUID == b.UUID }) {
			lines = append(lines, fmt.Sprintf("GPU %d (%s) is no longer available: the GPU fell off the bus, or the driver lost it; search the output of dmesg for Xid", b.Index, b.UUID))
		}
	}
	return lines
}

func (g GPU) changes(before GPU) []string {
	var lines []string
	if !slices.Equal(g.Slowed, before.Slowed) {
		now := "no longer slowed"
		if len(g.Slowed) > 0 {
			now = "slowed by " + strings.Join(g.Slowed, ", ")
		}
		lines = append(lines, fmt.Sprintf("GPU %d: %s; %d of %d MHz, %d C", g.Index, now, g.Clock, g.MaxClock, g.Temperature))
	}
	if g.Uncorrected > before.Uncorrected {
		lines = append(lines, fmt.Sprintf("GPU %d: %d new uncorrected memory errors: results since the last log line are not reliable; resume from the previous checkpoint on another machine",
			g.Index, g.Uncorrected-before.Uncorrected))
	}
	if g.Corrected > before.Corrected {
		lines = append(lines, fmt.Sprintf("GPU %d: %d new corrected memory errors", g.Index, g.Corrected-before.Corrected))
	}
	return lines
}

// reasons are the bits of NVML's clock event reasons that cost speed; an idle
// GPU and clocks somebody chose are none.
var reasons = []struct {
	bit  uint64
	name string
}{
	{0x4, "its power limit"}, {0x8, "hardware (heat or power)"}, {0x10, "another GPU's clock (sync boost)"}, {0x20, "heat (software)"},
	{0x40, "heat (hardware)"}, {0x80, "the power brake of the power supply"},
}

func slowed(bits uint64) []string {
	var names []string
	for _, r := range reasons {
		if bits&r.bit != 0 {
			names = append(names, r.name)
		}
	}
	return names
}
