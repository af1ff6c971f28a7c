package command

import (
	"slices"

	"github.com/urfave/cli/v2"

	"monotron/csrc/device"
)

// ModelFlags are the flags of a command that computes with a trained model: which, then its
// own, then how the model lies on devices and ranks, and the tokenizer's.
func ModelFlags(own ...cli.Flag) []cli.Flag {
	return slices.Concat([]cli.Flag{
		&cli.StringFlag{Name: "load", Usage: "load this model: a save folder, a Hugging Face folder, a checkpoint of any known format, or the s3:// URL of a run's --save"},
		Between(-1, Counts, &cli.Int64Flag{Name: "ckpt-step", Value: -1, DefaultText: "the latest", Usage: "load this iteration"}),
	}, own, PrecisionFlags(), LayoutFlags(), DeviceFlags(), TokenizerFlags())
}

// AdapterFlag names an adapter of the model.
func AdapterFlag() cli.Flag {
	return &cli.StringFlag{Name: "adapter", Usage: "add the adapter in this PEFT folder to the model (default: none)"}
}

// Model is the action of such a command: its options are read, then it runs with what opens a
// device for each rank.
func Model[O any](open func(name string) (*device.Device, error), read func(*cli.Context) (O, error),
	run func(*cli.Context, func() (*device.Device, error), O) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		if err := NoArgs(c); err != nil {
			return err
		}
		if err := fetchLoad(c); err != nil {
			return err
		}
		o, err := read(c)
		if err != nil {
			return err
		}
		one, err := Opener(c, open)
		if err != nil {
			return err
		}
		return run(c, one, o)
	}
}
