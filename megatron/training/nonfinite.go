package training

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"monotron/csrc/device"
	"monotron/internal/argv"
	"monotron/internal/atomicfile"
	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint/native"
	"monotron/megatron/engine"
	"monotron/megatron/model"
	"monotron/mpu/comm/failure"
	"monotron/mpu/health"
)

const nonFiniteHint = "lower --lr, check the data of this step, or continue anyway with --no-check-for-nan-in-loss-and-grad"

// spot is where a value is first not finite: micro-batch by micro-batch, layer by
// layer, and the lowest rank where several see it at once.
type spot struct {
	Rank, Micro, Depth int
	Tensor             string
	Samples            []int64 // of the micro-batch, as consumed from the data
}

// Depths that are not a layer's output.
const (
	nowhere   = -1      // all are finite
	lossDepth = 1 << 30 // the loss itself
)

// layer names the position of a residual stream.
func (s *spot) layer() string {
	switch s.Depth {
	case nowhere:
		return ""
	case 0:
		return "the embedding's output"
	case lossDepth:
		return "the loss"
	}
	return fmt.Sprintf("the output of layer %d", s.Depth-1)
}

func (s *spot) String() string {
	if s.Depth == nowhere {
		return fmt.Sprintf("the forward pass is finite; the gradient is not, first in %s on rank %d", s.Tensor, s.Rank)
	}
	return fmt.Sprintf("first in %s on rank %d, micro-batch %d, samples %v of the training data", s.layer(), s.Rank, s.Micro, s.Samples)
}

// explain says where a step became not finite, and keeps the step for replay.
func (r *Run) explain(ctx context.Context, err error, batch []*engine.Micro, consumed int64) error {
	var n *engine.NonFinite
	if !errors.As(err, &n) {
		return err
	}
	s, failed := r.locate(batch, consumed, nil)
	if failed != nil {
		return errors.Join(err, failed)
	}
	v := &failure.Verdict{Kind: failure.NonFinite, Rank: s.Rank, Code: exitcode.Internal, Phase: health.Forward.String(), Step: n.Step, Layer: s.layer(), Tensor: s.Tensor, Samples: s.Samples, Time: time.Now()}
	if s.Depth == nowhere {
		v.Phase = health.Backward.String()
	}
	v.Text = fmt.Sprintf("%v (%v); %s", n, s, nonFiniteHint)
	if v.Dump, failed = r.dump(ctx, batch, consumed); failed != nil {
		return errors.Join(v.Err(), failed)
	}
	if v.Dump != "" {
		v.Text += "; the step is recorded and can be repeated with monotron replay " + argv.Quoted(v.Dump)
	}
	return v.Err()
}

// tellWhySkipped says what is not finite in a step that is skipped at the least loss scale:
// the next one will be too, as nothing else changes. It is reported once in a row.
func (r *Run) tellWhySkipped(done *engine.Result, batch []*engine.Micro, consumed int64) error {
	if !done.Update.Skipped {
		r.lowest = false
		return nil
	}
	if r.lowest || !r.Engine.Scaler.Dynamic() || done.Scale > r.Config.Optimizer.MinLossScale {
		return nil
	}
	r.lowest = true
	s, err := r.locate(batch, consumed, nil)
	if err == nil && r.rank.First() {
		r.log.notes.Warn("iteration %d was skipped at the smallest loss scale, %g, and later iterations will also be skipped: %d gradient elements are not finite (%v); check the initial weights and the data of this step, lower --lr, or train in bf16",
			r.Engine.Iteration, done.Scale, done.Update.NonFinite, s)
	}
	return err
}

// locate runs the step's forward pass again and finds the spot; all ranks get the
// same. see, where given, gets each tensor that it checks.
func (r *Run) locate(micros []*engine.Micro, consumed int64, see func(micro, depth int, x device.Tensor)) (*spot, error) {
	e, mine := r.Engine, spot{Rank: r.rank.Number, Depth: nowhere}
	check := func(depth int, x device.Tensor) {
		if see != nil {
			see(e.Micro(), depth, x)
		}
		if mine.Depth == nowhere && !finite(r.device, x) {
			mine.Micro, mine.Depth = e.Micro(), depth
			for i, id := range micros[e.Micro()].Samples {
				if each := r.Config.Tuning.Sequences(); i%each == 0 {
					mine.Samples = append(mine.Samples, consumed+int64(id)/int64(each))
				}
			}
		}
	}
	atLoss := func(_ *model.Pass, out *model.Output) { check(lossDepth, out.Loss) }
	if err := e.Peek(micros, engine.Observer{Layer: check, Done: atLoss, Again: true}); err != nil {
		return nil, err
	}
	mine.Tensor = e.Optimizer.FirstNonFinite()
	all, err := r.shareSpots(&mine)
	if err != nil {
		return nil, err
	}
	return firstSpot(all), nil
}

// firstSpot is the earliest of the ranks' spots.
func firstSpot(all []spot) *spot {
	best := -1
	for i := range all {
		s := &all[i]
		if s.Depth == nowhere {
			continue
		}
		if best < 0 || s.Micro < all[best].Micro || (s.Micro == all[best].Micro && s.Depth < all[best].Depth) {
			best = i
		}
	}
	if best < 0 { // forward is fine: whose gradient is not?
		best = max(0, slices.IndexFunc(all, func(s spot) bool { return s.Tensor != "" }))
	}
	return &all[best]
}

// spotBytes is the size of one rank's spot sent to the others.
const spotBytes = 1024

// shareSpots gives every rank what all have found.
func (r *Run) shareSpots(mine *spot) ([]spot, error) {
	// Every rank's spot in as many bytes, as JSON with zeros behind it.
	if len(mine.Samples) > 32 {
		mine.Samples = mine.Samples[:32]
	}
	text, err := json.Marshal(mine)
	if err != nil {
		return nil, exitcode.Errorf(exitcode.Internal, "internal error: the report of a non-finite value cannot be written as JSON: %w; report this, and include the command line", err)
	}
	if len(text) > spotBytes {
		return nil, exitcode.Errorf(exitcode.Internal, "internal error: the report of a non-finite value has %d bytes, but at most %d can be sent; report this, and include the command line", len(text), spotBytes)
	}
	size := r.rank.World().Size()
	// An all-gather of I32 [spotBytes/4].
	in := r.device.Arena.Zeroed(device.Workspace, device.I32, spotBytes/4)
	out := r.device.Arena.Zeroed(device.Workspace, device.I32, int64(size)*spotBytes/4)
	defer r.device.Arena.Free(in)
	defer r.device.Arena.Free(out)
	r.device.Write(in, append(text, make([]byte, spotBytes-len(text))...))
	if err := r.rank.World().AllGather(out, in).Wait(); err != nil {
		return nil, err
	}
	bytes := make([]byte, size*spotBytes)
	r.device.Read(bytes, out)
	all := make([]spot, size)
	for i := range all {
		part := strings.TrimRight(string(bytes[i*spotBytes:(i+1)*spotBytes]), "\x00")
		if err := json.Unmarshal([]byte(part), &all[i]); err != nil {
			return nil, exitcode.Errorf(exitcode.Internal, "internal error: the report of a non-finite value from rank %d cannot be read: %w; report this, and include the command line", i, err)
		}
	}
	return all, r.device.Sync()
}

// finite reports whether all elements are.
func finite(d *device.Device, x device.Tensor) bool { return notFinite(d, x) == 0 }

// notFinite counts the elements that are not.
func notFinite(d *device.Device, x device.Tensor) (n int) {
	count := func(mask uint32, bits []uint32) {
		for _, v := range bits {
			if v&mask == mask {
				n++
			}
		}
	}
	x = x.Reshape(x.Len())
	switch x.DType {
	case device.F32:
		count(0x7f800000, device.ReadSlice[uint32](d, x))
	case device.BF16, device.F16:
		mask := uint16(0x7f80)
		if x.DType == device.F16 {
			mask = 0x7c00
		}
		for _, v := range device.ReadSlice[uint16](d, x) {
			if v&mask == mask {
				n++
			}
		}
	}
	return n
}

// recorded is the batch of one data-parallel rank, as a dump keeps it.
type recorded struct {
	Step     int64 // that became not finite, from 1
	Consumed int64 // training samples before it
	Micros   []*engine.Micro
}

// dump keeps the state before the step, and its batch, in the run's folder; "" where
// there is none.
func (r *Run) dump(ctx context.Context, batch []*engine.Micro, consumed int64) (string, error) {
	if r.Config.Watch.Folder == "" {
		return "", nil
	}
	step := r.Engine.Iteration + 1
	folder := filepath.Join(r.Config.Watch.Folder, fmt.Sprintf("nonfinite_%07d", step))
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", exitcode.With(exitcode.IO, err)
	}
	// The state is that before the step, whose samples are not consumed.
	state, err := r.state()
	if err != nil {
		return "", err
	}
	state.ConsumedTrain = consumed
	// All ranks write their parts of one checkpoint.
	options := native.SaveOptions{Rank: r.rank.Number, World: r.rank.World().Size(), Meet: r.rank.World().Barrier, Tag: r.rank.RunName}
	if _, err := native.Save(context.WithoutCancel(ctx), folder, state, r.stored(), r.device, options); err != nil {
		return "", err
	}
	// One rank of each data-parallel group keeps the samples.
	if r.rank.Coordinates.TP == 0 && r.rank.Coordinates.PP == 0 && r.rank.Coordinates.CP == 0 {
		text, err := json.Marshal(recorded{step, consumed, batch})
		if err != nil {
			return "", exitcode.With(exitcode.Internal, err)
		}
		if err := atomicfile.WriteFile(batchFile(folder, r.rank.Coordinates.DP), 0o600, text); err != nil {
			return "", err
		}
	}
	return folder, r.rank.World().Barrier()
}

func batchFile(folder string, dp int) string {
	return filepath.Join(folder, fmt.Sprintf("batch_%05d.json", dp))
}
