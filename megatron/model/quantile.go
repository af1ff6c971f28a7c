package model

import (
	"slices"

	"monotron/csrc/device"
	"monotron/megatron/spec"
	"monotron/mpu"
)

// Quantile balancing chooses by logits less a number for each expert, which after every step
// is what as many tokens would have to beat as an even choice gives the expert: Megatron's
// quantile_balancing, a step of dual descent a global batch.

func (r *router) byQuantiles() bool { return slices.Contains(r.e.Balancing, spec.Quantiles) }

// lessQuantiles has the choice made by logits − beta, and in training notes where the next
// beta should lie.
func (r *router) lessQuantiles(p *Pass, tmp *device.Scope, choice *device.RouterForwardArgs) error {
	choice.Keys = tmp.Alloc(statsType(p), choice.Logits.Dims()...)
	p.D.Copy(choice.Keys, choice.Logits)
	choice.Bias = negative(p.D, tmp, r.beta)
	if p.Auxiliary == nil || p.Again {
		return nil
	}
	all, err := r.ofAllTokens(p, tmp, choice.Keys)
	if err != nil {
		return err
	}
	reported := p.Auxiliary.Quantiles[r.layer]
	for i, q := range quantiles(all, read(p.D, r.beta), r.e.TopK) {
		reported[i] += q
	}
	return p.D.Err()
}

// ofAllTokens are the logits of the micro-batch's tokens on all ranks that share it, on the host.
func (r *router) ofAllTokens(p *Pass, tmp *device.Scope, logits Tensor) ([]float64, error) {
	if n := int64(size(r.tokens)); n > 1 {
		all := tmp.Alloc(logits.DType, n*logits.Shape[0], logits.Last())
		if err := r.tokens.AllGather(all, logits).Wait(); err != nil {
			return nil, err
		}
		logits = all
	}
	return read(p.D, logits), nil
}

// read brings f32, or f64, to the host.
func read(d *device.Device, t Tensor) (all []float64) {
	if t.DType == device.F64 {
		return device.ReadSlice[float64](d, t)
	}
	for _, v := range device.ReadSlice[float32](d, t) {
		all = append(all, float64(v))
	}
	return all
}

// negative is −x of f32 [n].
func negative(d *device.Device, tmp *device.Scope, x Tensor) Tensor {
	y, factor := tmp.Like(x), tmp.Alloc(device.F32, 1)
	d.Fill(factor, -1)
	d.ScaleRows(y.Reshape(1, x.Len()), x.Reshape(1, x.Len()), factor)
	return y
}

// quantiles are, of logits [t,E], for each expert the number that t·k/E of the tokens exceed,
// where of each token's what its k+1st choice by logits − beta has is taken off first.
func quantiles(logits, beta []float64, k int) []float64 {
	experts := len(beta)
	tokens := len(logits) / experts
	columns := make([][]float64, experts)
	keys := make([]float64, experts)
	for t := range tokens {
		row := logits[t*experts:][:experts]
		for i := range keys {
			keys[i] = row[i] - beta[i]
		}
		slices.Sort(keys)
		for i, x := range row {
			columns[i] = append(columns[i], x-keys[experts-1-k])
		}
	}
	at := make([]float64, experts)
	for i, c := range columns {
		slices.Sort(c)
		at[i] = c[tokens-1-tokens*k/experts]
	}
	return at
}

// moveQuantiles takes a step's quantiles in, of which each is the mean over micro-batches.
func (r *router) moveQuantiles(d *device.Device, step []float64) {
	beta, mean := device.ReadSlice[float32](d, r.beta), 0.0
	for i := range beta {
		beta[i] = float32(r.e.QuantileEMA*float64(beta[i]) + (1-r.e.QuantileEMA)*step[i])
		mean += float64(beta[i]) / float64(len(beta))
	}
	for i := range beta {
		beta[i] -= float32(mean)
	}
	device.WriteSlice(d, r.beta, beta)
}

// buffers are the router's tensors that are not parameters, by their names in a checkpoint.
func (r *router) buffers(write bool) (all []mpu.Stored) {
	name := storedModel + r.linear.Weight.Name[:len(r.linear.Weight.Name)-len("weight")]
	for _, b := range []struct {
		name string
		on   bool
		t    Tensor
	}{{"expert_bias", r.e.ExpertBias, r.bias}, {"qb_beta", r.byQuantiles(), r.beta}} {
		if b.on {
			shape := []int64{int64(r.e.Num)}
			all = append(all, mpu.Stored{Name: name + b.name, Global: shape, Tensor: b.t, Pieces: []mpu.Piece{{From: []int64{0}, Size: shape}}, Write: write})
		}
	}
	return all
}
