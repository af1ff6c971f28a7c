package command

import (
	"github.com/urfave/cli/v2"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
)

// DeviceFlags choose what computes.
func DeviceFlags() []cli.Flag {
	return In("device", []cli.Flag{
		&cli.StringFlag{Name: "device", Value: "auto", Usage: "compute on this device: auto, cpu, cuda or ref"},
		Between(0, Threads, &cli.IntFlag{Name: "cpu-threads", Usage: "use N threads on the CPU device (0 uses all cores)"}),
	})
}

// PrecisionFlags choose the type of a model's values.
func PrecisionFlags() []cli.Flag {
	return In("precision", []cli.Flag{
		&cli.BoolFlag{Name: "fp32", Usage: "compute in f32"},
		&cli.BoolFlag{Name: "bf16", Usage: "compute in bf16"},
		&cli.BoolFlag{Name: "fp16", Usage: "compute in fp16"},
	})
}

// Precision is f32, bf16 or fp16 as those flags say, "" where none is given.
func Precision(c *cli.Context) (string, error) {
	chosen := ""
	for _, p := range [][2]string{{"fp32", "f32"}, {"bf16", "bf16"}, {"fp16", "fp16"}} {
		if !c.Bool(p[0]) {
			continue
		}
		if chosen != "" {
			return "", exitcode.Errorf(exitcode.Usage, "--fp32, --bf16 and --fp16 cannot be combined; give one")
		}
		chosen = p[1]
	}
	return chosen, nil
}

// Opener opens devices as the flags say, one a call.
func Opener(c *cli.Context, open func(name string) (*device.Device, error)) (func() (*device.Device, error), error) {
	if c.Int("cpu-threads") > 0 {
		device.SetThreads(c.Int("cpu-threads"))
	}
	return func() (*device.Device, error) { return open(c.String("device")) }, nil
}

// LayoutFlags cut a model over ranks of this process.
func LayoutFlags() []cli.Flag {
	return In("parallel layout", []cli.Flag{
		Between(1, most, &cli.IntFlag{Name: "tensor-model-parallel-size", Value: 1, Usage: "shard each layer over N ranks of this process"}),
		Between(1, most, &cli.IntFlag{Name: "pipeline-model-parallel-size", Value: 1, Usage: "divide the layers into N pipeline stages, each with its own ranks"}),
		Between(1, most, &cli.IntFlag{Name: "expert-model-parallel-size", Value: 1, Usage: "share the experts among N ranks, where N is the tensor-parallel size or a multiple of it"}),
	})
}

// most ranks of a process.
const most = 1024

// ContextFlag cuts prompts over ranks of this process.
func ContextFlag() cli.Flag {
	return Between(1, most, &cli.IntFlag{Name: "context-parallel-size", Value: 1, Usage: "share the positions of each prompt among N ranks of this process"})
}

// Layout is what they say: the ranks of tensors, the stages, the ranks of experts.
func Layout(c *cli.Context) (tp, pp, ep int) {
	return c.Int("tensor-model-parallel-size"), c.Int("pipeline-model-parallel-size"), c.Int("expert-model-parallel-size")
}

// WithDevice runs body on the device that the flags name. Lack of device memory
// inside is an error, not a panic.
func WithDevice(c *cli.Context, open func(name string) (*device.Device, error), body func(*device.Device) error) (err error) {
	one, err := Opener(c, open)
	if err != nil {
		return err
	}
	d, err := one()
	if err != nil {
		return err
	}
	defer d.Close()
	defer device.CatchOutOfMemory(&err)
	return body(d)
}
