package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/tools/internal/command"
	"monotron/tools/internal/timing"
)

// benchPeak is `bench peak`: products alone, in the run's own dtype.
func benchPeak(c *cli.Context, open func(string) (*device.Device, error)) error {
	o, err := readOptions(c)
	if err != nil {
		return err
	}
	return command.WithDevice(c, open, func(d *device.Device) error {
		p := newPeaks(d, o, full)
		if err := p.first(valueType(o.precision)); err != nil {
			return err
		}
		out := &command.Printer{W: c.App.Writer}
		if !c.Bool("json") {
			printProducts(out, p.speeds())
			return out.Err
		}
		text, err := json.Marshal(p.speeds())
		out.Printf("%s\n", text)
		if err != nil {
			return err
		}
		return out.Err
	})
}

// hasOther reports whether the matrix library is there, while products of this dtype may go
// past it to our own kernels.
func hasOther(d *device.Device, own device.DType) bool {
	return own != device.F16 && strings.Contains(d.Describe(), "oneDNN")
}

// libraryPeak times the same products by the library, in a process of this program
// that is set to leave our own kernels alone where it can.
func libraryPeak(ctx context.Context, o options) ([]speed, error) {
	words := []string{"bench", "peak", "--json", "--model", o.name, "--micro-batch-size", strconv.Itoa(o.batch), "--seq-length", strconv.Itoa(o.seq),
		"--cpu-threads", strconv.Itoa(device.SharedPool().Threads())}
	if o.precision != "f32" {
		words = append(words, "--"+o.precision)
	}
	cmd, err := timing.Again(ctx, words...)
	if err != nil {
		return nil, err
	}
	cmd.Env = append(os.Environ(), "MONOTRON_ONEDNN=all")
	text, err := cmd.Output()
	if err != nil {
		return nil, exitcode.Errorf(exitcode.Internal, "bench peak: %w", err)
	}
	var list []speed
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, exitcode.With(exitcode.Internal, fmt.Errorf("bench peak: %w", err))
	}
	for i := range list {
		list[i].Library = true
	}
	return list, nil
}
