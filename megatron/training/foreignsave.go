package training

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/all"
	"monotron/megatron/checkpoint/native"
	"monotron/mpu"
)

// formatOf is what --ckpt-format asks for.
func formatOf(name string) checkpoint.Format {
	switch name {
	case "torch":
		return checkpoint.MegatronTorch
	case "torch_dist":
		return checkpoint.MegatronTorchDist
	}
	return checkpoint.Native
}

// saveAs writes a checkpoint in Megatron's formats. One rank writes what it
// holds; several first save our own format, which one of them then converts.
func (r *Run) saveAs(ctx context.Context, format checkpoint.Format, state native.State, o native.SaveOptions) (native.Report, error) {
	if o.World < 2 {
		report := native.Report{Iteration: state.Iteration}
		return report, r.writeForeign(ctx, format, &gathered{r: r, state: state, tensors: r.stored()}, &report)
	}
	meanwhile, o := r.meanwhile(o)
	report, err := native.Save(ctx, meanwhile, state, r.stored(), r.device, o)
	return r.convertSaved(ctx, format, meanwhile, o.Rank, report, err)
}

// saveAsLater is saveAs during the training: our own format from a copy in
// memory, then the other from that.
func (r *Run) saveAsLater(ctx context.Context, format checkpoint.Format, state native.State, o native.SaveOptions) (*native.Pending, error) {
	meanwhile, o := r.meanwhile(o)
	p, err := native.SaveAsync(ctx, meanwhile, state, r.stored(), r.device, o)
	if err != nil {
		return nil, err
	}
	return p.Then(func(report native.Report, err error) (native.Report, error) {
		return r.convertSaved(ctx, format, meanwhile, o.Rank, report, err)
	}), nil
}

// meanwhile is the folder for our own format, and how it is saved there.
func (r *Run) meanwhile(o native.SaveOptions) (string, native.SaveOptions) {
	o.KeepLast, o.KeepEvery, o.Keep = 0, 0, 0
	return filepath.Join(r.Config.Checkpoint.Save, ".tmp-native-"+o.Tag), o
}

// convertSaved turns what all ranks saved into the format, on the first of them.
func (r *Run) convertSaved(ctx context.Context, format checkpoint.Format, meanwhile string, rank int, saved native.Report, err error) (native.Report, error) {
	report := native.Report{Iteration: saved.Iteration}
	if rank > 0 {
		return report, err
	}
	if err == nil {
		err = r.convertNative(ctx, format, meanwhile, &report)
	}
	if removed := os.RemoveAll(meanwhile); err == nil {
		err = exitcode.With(exitcode.IO, removed)
	}
	return report, err
}

func (r *Run) convertNative(ctx context.Context, format checkpoint.Format, dir string, report *native.Report) error {
	src, err := all.OpenAs(checkpoint.Native, dir, checkpoint.OpenOptions{Step: -1})
	if err != nil {
		return err
	}
	defer src.Close()
	return r.writeForeign(ctx, format, src, report)
}

func (r *Run) writeForeign(ctx context.Context, format checkpoint.Format, src checkpoint.Source, report *native.Report) error {
	c, l := &r.Config, r.Config.Layout
	if err := native.Clean(c.Checkpoint.Save, r.rank.RunName); err != nil {
		return err
	}
	written, err := all.Write(ctx, format, c.Checkpoint.Save, src, checkpoint.WriteOptions{Layout: checkpoint.Layout{TP: l.TP, PP: l.PP, VP: l.VP, EP: l.EP, ETP: l.ETP,
		DP: l.DP, FirstStage: l.FirstStageLayers, LastStage: l.LastStageLayers, DistributedOptimizer: l.DistributedOptimizer}, NoTokenizerFiles: c.Checkpoint.NoTokenizer, OfRun: true})
	if err != nil {
		return err
	}
	report.Folder, report.Bytes = written.Path, written.Bytes
	report.Notes = append(report.Notes, written.Notes...)
	if c.Checkpoint.KeepLast > 0 {
		report.Notes = append(report.Notes, fmt.Sprintf("--ckpt-format %s: older checkpoints are not removed", c.Checkpoint.Format))
	}
	return nil
}

// gathered shows the tensors of a run on one rank as a Source.
type gathered struct {
	r       *Run
	state   native.State
	tensors []mpu.Stored

	mu sync.Mutex // a device is used by one goroutine at a time
}

func (h *gathered) Info() checkpoint.Info {
	m := h.r.Config.Model
	return checkpoint.Info{Format: checkpoint.Native, Path: "the run", Model: &m, SeqLength: h.r.Config.SeqLength, Tokenizer: h.r.Config.Tokenizer.Absolute(), Specials: h.r.specials}
}

func (h *gathered) State() checkpoint.State { return h.state }
func (h *gathered) Close() error            { return nil }

func (h *gathered) Tensors() []checkpoint.Tensor {
	list := make([]checkpoint.Tensor, len(h.tensors))
	for i, t := range h.tensors {
		list[i] = checkpoint.Tensor{Name: t.Name, DType: gatheredTypes[t.Tensor.DType], Shape: t.Global}
	}
	return list
}

var gatheredTypes = map[device.DType]string{device.F32: "F32", device.BF16: "BF16", device.F16: "F16", device.F64: "F64"}

func (h *gathered) Read(name string, box mpu.Piece, dst []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.tensors {
		if t.Name != name {
			continue
		}
		flat, width := t.Tensor.Reshape(t.Tensor.Len()), t.Tensor.DType.Size()
		for _, p := range t.Pieces {
			for o := checkpoint.NewOverlap(p, box); o.OK; o.Take(o.N) {
				h.r.device.Read(dst[o.InB*width:(o.InB+o.N)*width], flat.Slice(0, p.Local+o.InA, o.N))
			}
		}
		return h.r.device.Err()
	}
	return exitcode.Errorf(exitcode.Internal, "internal error: the run has no tensor %q; report this, and include the command line", name)
}
