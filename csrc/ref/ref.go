package ref

import (
	"maps"
	"slices"
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
	if err := known.Refusal(op, args); err != nil {
		return err
	}
	device.Do(b, op, args)
	return nil
}

// known lists what the files of the ops have formulas for.
var known = &device.Known{
	DTypes:      1<<device.DTypes - 1, // by device.LoadFloat64
	Values:      device.SetOf(device.F32, device.BF16, device.F16, device.F64),
	Activation:  keys(formulas),
	Epilogue:    keys(epilogues) | device.SetOf(device.NoEpilogue),
	NormKind:    device.SetOf(device.LayerNormKind, device.RMSNormKind),
	RouterScore: keys(routerScores),
	ScaleRule:   device.SetOf(device.ScaleBelow, device.ScaleE8M0),
	ScoreRule:   device.SetOf(device.PlainScores, device.CappedScores),
}

func keys[E ~int32, V any](m map[E]V) device.Set {
	return device.SetOf(slices.Collect(maps.Keys(m))...)
}

// spread cuts 0..n into stretches of at most `each` and runs them on the pool.
func (b *backend) spread(n, each int64, body func(from, to int64)) {
	b.pool.Run((n+each-1)/each, func(_ int, tile int64) {
		body(tile*each, min(n, (tile+1)*each))
	})
}

// each picks how many rows of `width` elements make one tile.
func each(width int64) int64 { return max(1, 1<<14/max(1, width)) }
