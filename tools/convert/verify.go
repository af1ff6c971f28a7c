package convert

import (
	"fmt"
	"math"
	"strings"

	"github.com/urfave/cli/v2"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/all"
	"monotron/megatron/checkpoint/compare"
	"monotron/megatron/checkpoint/hf"
	"monotron/megatron/inference"
	"monotron/tools/internal/command"
)

// promptLength of a prompt that nobody named.
const promptLength = 16

// verify reads the output back and compares it with what was to be written:
// every weight bit for bit, and the logits of a prompt.
func verify(c *cli.Context, o *options, src checkpoint.Source, written checkpoint.Written, open func(string) (*device.Device, error), notes *command.Printer) error {
	back, err := all.OpenAs(o.to, written.Path, checkpoint.OpenOptions{Step: -1, MTP: src.Info().Model.MTP != nil})
	if err != nil {
		return fmt.Errorf("reading the output back: %w", err)
	}
	defer back.Close()
	if o.to == checkpoint.GGUF { // some tensors are always F32 there
		src, back = checkpoint.Retype(src, "F32"), checkpoint.Retype(back, "F32")
	}
	values := func(t checkpoint.Tensor) bool { return strings.HasPrefix(t.Name, checkpoint.Model) }
	rows, err := compare.Tensors(checkpoint.Select(src, values), checkpoint.Select(back, values), compare.Options{})
	if err != nil {
		return fmt.Errorf("reading the output back: %w", err)
	}
	for i := range rows {
		r := &rows[i]
		widened := checkpoint.IsBuffer(r.Name) && r.DTypeB == "F32" // Megatron's formats store these in f32
		if !r.Equal() || r.DTypeA != r.DTypeB && !widened {
			return unequal(written.Path, r)
		}
	}
	notes.Printf("verified: %d weights are bit-equal\n", len(rows))
	if o.to == checkpoint.HF {
		judged, err := hf.CheckPeer(written.Path, src.Info().Model)
		if err != nil {
			return err
		}
		if judged {
			notes.Printf("verified: settings, names and shapes are those of transformers' own class\n")
		}
	}
	prompt := o.prompt
	if len(prompt) == 0 {
		prompt = somePrompt(src.Info())
	}
	want, err := logitsOf(c, open, src, prompt)
	if err != nil {
		return err
	}
	got, err := logitsOf(c, open, back, prompt)
	if err != nil {
		return err
	}
	worst := 0.0
	for i := range want {
		if diff := math.Abs(float64(want[i]) - float64(got[i])); !(diff <= worst) { // NaN counts
			worst = diff
		}
	}
	if worst != 0 {
		return exitcode.Errorf(exitcode.Differs, "the logits of %d tokens differ by up to %g between input and output: the settings stored with the weights are not the same; do not use the output",
			len(prompt), worst)
	}
	notes.Printf("verified: %d logits of a prompt of %d tokens are equal\n", len(want), len(prompt))
	return nil
}

// unequal is the error for a tensor that was not written as it should be.
func unequal(path string, r *compare.Tensor) error {
	return exitcode.Errorf(exitcode.Differs, "verification failed: %s: tensor %s (%s%v) has %d elements that differ from those of the input (%s%v); do not use the output",
		path, r.Name, r.DTypeB, r.ShapeB, r.Different, r.DTypeA, r.ShapeA)
}

// somePrompt spreads ids over the vocabulary.
func somePrompt(info checkpoint.Info) []int32 {
	n := promptLength
	if p := info.Model.MaxPositions; p > 0 {
		n = min(n, p)
	}
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32((i*7919 + 1) % info.Model.VocabSize)
	}
	return ids
}

// logitsOf runs a prompt in f32, on a device of its own: two models need not fit
// into memory.
func logitsOf(c *cli.Context, open func(string) (*device.Device, error), src checkpoint.Source, prompt []int32) (all []float32, err error) {
	err = command.WithDevice(c, open, func(d *device.Device) error {
		m, err := inference.FromSource(d, src, inference.LoadOptions{})
		if err != nil {
			return err
		}
		return m.Logits(prompt, func(_ int, logits []float32) error {
			all = append(all, logits...)
			return nil
		})
	})
	return all, err
}
