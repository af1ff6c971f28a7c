// Package ref is the plain Go device: the oracle that every other device is
// compared with, and what trains where there is no C compiler.
//
// One rule holds everywhere: values are widened to float64, the formula is
// computed as the paper writes it, sums run in index order, and what is stored
// is rounded once. All dtypes may be F64, statistics too, so that finite
// differences see no rounding. Rows are spread over the pool; no sum crosses
// tiles, so the number of threads changes nothing.
package ref

import (
	"fmt"
	"unsafe"

	"monotron/csrc/device"
)

type backend struct {
	device.HostBackend
	pool *device.Pool
}

// Open makes a device for one rank on the process's pool.
func Open() *device.Device { return OpenOn(device.SharedPool()) }

// OpenOn makes a device whose work is done by pool.
func OpenOn(pool *device.Pool) *device.Device { return device.New("ref", &backend{pool: pool}) }

func (b *backend) Describe() string { return "plain Go in float64" }

// Run does op before it returns.
func (b *backend) Run(op device.Op, args unsafe.Pointer) error {
	if op < 0 || op >= device.Ops {
		return fmt.Errorf("ref: no op %d", op)
	}
	ops[op](b, args)
	return nil
}

var ops = [device.Ops]func(*backend, unsafe.Pointer){
	device.OpMatmul:             with(matmul),
	device.OpNormForward:        with(normForward),
	device.OpNormBackward:       with(normBackward),
	device.OpActivationForward:  with(activationForward),
	device.OpActivationBackward: with(activationBackward),
	device.OpRope:               with(rope),
	device.OpAttentionForward:   with(attentionForward),
	device.OpAttentionBackward:  with(attentionBackward),
	device.OpEmbeddingForward:   with(embeddingForward),
	device.OpEmbeddingBackward:  with(embeddingBackward),
	device.OpCrossEntropyStats:  with(crossEntropyStats),
	device.OpCrossEntropyLoss:   with(crossEntropyLoss),
	device.OpCrossEntropyGrad:   with(crossEntropyGrad),
	device.OpDropoutAdd:         with(dropoutAdd),
	device.OpDropoutBackward:    with(dropoutBackward),
	device.OpColumnSum:          with(columnSum),
	device.OpAdd:                with(add),
	device.OpCopy:               with(copyOp),
	device.OpFill:               with(fill),
	device.OpUniform:            with(uniform),
	device.OpGradStats:          with(gradStats),
	device.OpWeightedSum:        with(weightedSum),
	device.OpGradScale:          with(gradScale),
	device.OpAdamW:              with(adamW),
	device.OpSGD:                with(sgd),
}

func with[A any](f func(*backend, *A)) func(*backend, unsafe.Pointer) {
	return func(b *backend, args unsafe.Pointer) { f(b, (*A)(args)) }
}

// spread cuts 0..n into stretches of at most `each` and runs them on the pool.
func (b *backend) spread(n, each int64, body func(from, to int64)) {
	b.pool.Run((n+each-1)/each, func(_ int, tile int64) {
		body(tile*each, min(n, (tile+1)*each))
	})
}

// each picks how many rows of `width` elements make one tile.
func each(width int64) int64 { return max(1, 1<<14/max(1, width)) }
