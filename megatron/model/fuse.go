package model

import (
	"bytes"
	"fmt"
	"math"

	"monotron/csrc/device"
	"monotron/megatron/spec"
)

// AttentionRun is what determines a run's attention calls, in addition to the model.
type AttentionRun struct {
	DType      device.DType
	Batch, Seq int64 // of a micro-batch
	Documents  bool  // they do not see each other
	Workspace  int64 // bytes that the vendor's library may have at most
}

// FuseAttention makes the attention of a run's micro-batches run in the vendor's library
// (device.FuseAttention), after a trial against the device's own kernels: forward and
// backward of random values must agree with theirs and repeat bit for bit. It returns the
// largest relative difference (of root mean squares), or why the library is not taken.
func FuseAttention(d *device.Device, m *spec.Model, p Parallel, r AttentionRun) (difference float64, err error) {
	defer func() {
		if err != nil {
			d.OwnAttention()
		}
	}()
	defer device.CatchOutOfMemory(&err)
	s := d.Arena.Scope(device.Workspace)
	defer s.Release()
	t := newTrial(d, s, m, p, r)
	// Reject what the library cannot run before the trial costs anything.
	if err := d.FuseAttention(t.call, r.Workspace); err != nil {
		return 0, err
	}
	// The same call by our kernels once, by the library twice.
	d.OwnAttention()
	own, err := t.run()
	if err != nil {
		return 0, err
	}
	if err := d.FuseAttention(t.call, r.Workspace); err != nil {
		return 0, err
	}
	once, err := t.run()
	if err != nil {
		return 0, err
	}
	again, err := t.run()
	if err != nil {
		return 0, err
	}
	// It must repeat bit for bit, so that a run does, and agree with ours within roundings.
	for i, name := range []string{"output", "log of the softmax's sum", "gradients"} {
		if !bytes.Equal(once[i], again[i]) {
			return 0, fmt.Errorf("in a trial, two runs of cuDNN's attention gave different bits for the %s", name)
		}
		off := relative(t.results[i], once[i], own[i])
		if !(off <= trialTolerance) {
			return 0, fmt.Errorf("in a trial, the %s of cuDNN's attention differed by %.1f%% from the result of monotron's kernels", name, 100*off)
		}
		difference = max(difference, off)
	}
	return difference, nil
}

// trialTolerance is several roundings to bf16 (0.4 % each); a wrong mask, scale or head is
// off by tens of percent.
const trialTolerance = 0.02

// trial is one attention call of a run, with gradients.
type trial struct {
	d       *device.Device
	call    device.AttentionBackwardArgs
	results [3]Tensor
}

func newTrial(d *device.Device, s *device.Scope, m *spec.Model, p Parallel, r AttentionRun) *trial {
	mine, tokens := p.share(m), r.Batch*r.Seq
	context, _ := p.contextOf(0)
	a := &attention{m: m, groups: mine.groups / int64(context.Heads), perGroup: mine.perGroup, channels: int64(m.KVChannels)}
	heads := []int64{tokens, a.groups, a.perGroup, a.channels}
	qkv, dqkv := s.Alloc(r.DType, tokens, a.groups*(a.perGroup+2)*a.channels), s.Alloc(r.DType, tokens, a.groups*(a.perGroup+2)*a.channels)
	o, do := s.Alloc(r.DType, heads...), s.Alloc(r.DType, heads...)
	scatter(d, s, qkv, 1)
	scatter(d, s, do, 2)
	d.Fill(dqkv, 0)
	used, grads := a.split(qkv), a.split(dqkv)
	if m.QKNorm && context.Heads == 1 { // the norms write queries and keys next to each other, an exchange of heads puts them together again
		raw := used
		used.q, used.k = s.Like(raw.q), s.Like(raw.k)
		d.Copy(used.q, raw.q)
		d.Copy(used.k, raw.k)
		grads.q, grads.k = s.Like(grads.q), s.Like(grads.k)
	}
	call := device.AttentionForwardArgs{O: o, LSE: s.Alloc(device.F32, r.Batch, a.groups*a.perGroup, r.Seq), Q: used.q, K: used.k, V: used.v, Batch: int32(r.Batch),
		Window: int32(m.WindowLeft), Chunk: int32(m.Chunk), Scale: float32(m.ScoreScale())}
	call.Drop.Rate = float32(m.AttentionDropout)
	if r.Documents {
		call.DocStart = s.Alloc(device.I32, r.Batch, r.Seq)
	}
	return &trial{d: d, call: device.AttentionBackwardArgs{DQ: grads.q, DK: grads.k, DV: grads.v, DO: do, Forward: call}, results: [3]Tensor{o, call.LSE, dqkv}}
}

// scatter makes x random: uniform in ±1.
func scatter(d *device.Device, s *device.Scope, x Tensor, stream uint64) {
	inner := d.Arena.Scope(device.Workspace)
	defer inner.Release()
	step, wide, less := inner.Alloc(device.I64, 1), inner.Alloc(device.F32, x.Dims()...), inner.Alloc(device.F32, x.Dims()...)
	device.WriteSlice(d, step, []int64{1})
	d.Uniform(device.UniformArgs{Out: wide, Step: step, Stream: stream})
	d.Fill(less, -0.5)
	d.Add(wide, wide, less)
	d.Add(wide, wide, wide)
	d.Copy(x, wide)
}

// run does the call and returns its results as they lie in memory.
func (t *trial) run() (out [3][]byte, err error) {
	err = t.d.Try(func() {
		t.d.AttentionForward(t.call.Forward)
		t.d.AttentionBackward(t.call)
		for i, x := range t.results {
			out[i] = make([]byte, x.Bytes())
			t.d.Read(out[i], x)
		}
	})
	return out, err
}

// relative is √(Σ(x−y)²/Σy²) over some thousands of t's rows.
func relative(t Tensor, x, y []byte) float64 {
	row := t.Bytes() / t.Shape[0]
	var off, all float64
	for i := int64(0); i < t.Shape[0]; i += max(1, t.Len()>>22) {
		a, b := device.ToFloat64(t.DType, x[i*row:(i+1)*row]), device.ToFloat64(t.DType, y[i*row:(i+1)*row])
		for j := range b {
			off, all = off+(a[j]-b[j])*(a[j]-b[j]), all+b[j]*b[j]
		}
	}
	return math.Sqrt(off / all)
}
