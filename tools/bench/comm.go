package bench

import (
	"fmt"
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"monotron/csrc/device"
	"monotron/mpu/comm/inproc"
	"monotron/mpu/comm/process"
	"monotron/tools/internal/command"
	"monotron/tools/internal/timing"
)

// benchComm times all-reduces among goroutines and the memory's own speed, then
// among two processes by every transport, with Gloo's own sums and, where PYTHON has
// torch, torch.distributed's.
func benchComm(c *cli.Context, open func(string) (*device.Device, error)) error {
	// A process that this one has started measures; this one compares.
	if role := os.Getenv(timing.RoleVariable); role != "" {
		return timing.Rank(role, c.App.Writer, func() (*device.Device, error) { return open(c.String("device")) })
	}
	r, out := commResult{}, tableOf(c)
	for _, ranks := range []int{2, 4} {
		s, err := inproc.Bench(func() (*device.Device, error) { return open(c.String("device")) }, ranks, 64<<20, 2*time.Second)
		if err != nil {
			return err
		}
		r.Goroutines = append(r.Goroutines, goroutineTime{s.Ranks, s.Bytes, s.Took.Seconds(), s.Copy, s.Bound.Seconds()})
		out.Printf("%v\n", s)
	}
	// Two processes, by each transport in turn.
	out.Printf("\nall-reduce between 2 processes\n%-28s %10s %10s %10s\n", "", "64 MB", "4 KB", "ratio")
	var gloo float64
	for _, w := range ways() {
		times, err := w.Time(c.Context, c.String("device"), 2)
		if err != nil {
			r.Processes = append(r.Processes, wayTime{Way: w.Name, Failed: err.Error()})
			out.Printf("%-28s %v\n", w.Name, err)
			continue
		}
		r.Processes = append(r.Processes, wayTime{Way: w.Name, Seconds: times[0], Small: times[1]})
		speed, ratio := timing.Bytes[0]/times[0]/1e9, ""
		switch {
		case w.Transport == "torch", w.Fast && gloo == 0:
			gloo = max(gloo, speed)
		case gloo > 0:
			ratio = fmt.Sprintf("%.2f", speed/gloo)
		}
		out.Printf("%-28s %5.2f GB/s %7.0f us %10s\n", w.Name, speed, times[1]*1e6, ratio)
	}
	out.Printf("The ratio is that of the rates at 64 MB, to torch if torch is measured, otherwise to Gloo alone. The time of 4 KB is the shortest one, in which the part of the other rank had already arrived.\n")
	if out.Err == nil && c.Bool("json") {
		out = &command.Printer{W: c.App.Writer}
		out.JSON(r)
	}
	return out.Err
}

// commResult is what `bench comm --json` prints.
type commResult struct {
	Goroutines []goroutineTime `json:"goroutines"`
	Processes  []wayTime       `json:"processes"` // two
}

// goroutineTime is an all-reduce among ranks of one process, f32.
type goroutineTime struct {
	Ranks   int     `json:"ranks"`
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"`
	Copy    float64 `json:"copy_bytes_per_second"`
	Bound   float64 `json:"bound_seconds"` // what must be touched, at that rate
}

// wayTime is an all-reduce between two processes by one way, or why there is none.
type wayTime struct {
	Way     string  `json:"way"`
	Seconds float64 `json:"seconds_64_mb,omitempty"`
	Small   float64 `json:"seconds_4_kb,omitempty"`
	Failed  string  `json:"failed,omitempty"`
}

// ways has the peers first.
func ways() []timing.Way {
	var all []timing.Way
	if os.Getenv("PYTHON") != "" {
		all = append(all, timing.Way{Name: "torch.distributed, gloo", Transport: "torch"})
	}
	if process.GlooMissing() == nil {
		all = append(all, timing.Way{Name: "Gloo's own (--fast-reduce)", Transport: "gloo", Fast: true}, timing.Way{Name: "Gloo, monotron's sum", Transport: "gloo"})
	}
	return append(all, timing.Way{Name: "shared memory, monotron's sum", Transport: "shm"}, timing.Way{Name: "plain TCP, monotron's sum", Transport: "tcp"})
}
