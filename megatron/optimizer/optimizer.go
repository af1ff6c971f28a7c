package optimizer

import (
	"monotron/csrc/device"
	"monotron/mpu"
	"monotron/mpu/comm"
)

// Optimizer holds the memory of a rank's parameters, reduces their gradients and
// updates them. See the package's doc.
type Optimizer struct {
	device   *device.Device
	config   Config
	groups   Groups
	params   []*mpu.Param
	families []*family
	buckets  []*bucket // of all families
	bucketOf map[*mpu.Param]*bucket
	segments []*segment              // of trained parameters, in the order of params
	shares   map[*mpu.Param]*segment // of all params
	runs     []*run                  // what is updated here, a call each
	matrices []*matrix               // what Muon updates, in the order of the model
	counted  []counted               // what the norm is of, a call each
	inFlight *bucket                 // its gradients are being reduced, ZeRO-2 and 3

	// What ranks count is added up over the world, not over one copy of the model:
	// ranks have shards, or families that other ranks share differently.
	worldwide bool

	readback  device.Tensor // f64: stats, Extra and hypers, a piece each: what the host reads of a step, at once
	clips     []clip        // of all gradients but those with OwnClip; with Config.OwnClip then of these
	rate      device.Tensor // f32 [1]: that of --decoupled-lr; not given without
	stats     device.Tensor // f64 [Stats]: the first clip's
	Extra     device.Tensor // f64 [Extras]: what others want the host to read with a step's result
	Steps     int64         // updates made, for Adam's bias correction
	away      *away         // what is offloaded; nil: nothing
	ahead     ahead         // what is brought before it is used, ZeRO-3
	exact     *exact        // nil: gradients have the order of the layout
	averaging *averaging    // nil: values are the main parameters, or these rounded
	coder     *coder        // nil: moments are f32
	Graph     *device.Graph // of the update, where the rank is alone; nil: op by op
}

// New gives params their memory: values of dtype, and where they are trained f32 main
// gradients, main parameters where dtype is not f32, and moments; all of it, or the rank's
// shards. Initial values are not set. All ranks of a family's Data have equal params.
func New(d *device.Device, c Config, params []*mpu.Param, dtype device.DType, g Groups, s Sharding) *Optimizer {
	if c.Kind == Adam8 {
		s.align = device.CodeBlock
	}
	o := &Optimizer{device: d, config: c, groups: g, params: params, families: g.families(params, s), bucketOf: map[*mpu.Param]*bucket{},
		worldwide: len(g.Families) > 1 || s.of(g.Families[mpu.Dense]).Strategy != NoShard}
	o.allocateReadback()
	o.newExact()
	o.coder, o.averaging = o.newCoder(), o.newAveraging()
	o.allocate(dtype, s.Offloaded)
	return o
}

// clip is gradients that are clipped by one norm.
type clip struct {
	stats device.Tensor // f64 [Stats]
	hyper device.Tensor // f32 [Hypers]
	apart device.Tensor // the same with the rate of Config.apart; not given without
}

// allocateReadback allocates what the host exchanges with a step: the clips' statistics, Extra, their hypers.
func (o *Optimizer) allocateReadback() {
	clips := int64(1)
	if o.config.OwnClip {
		clips = 2
	}
	d := o.device
	o.readback = d.Arena.Zeroed(device.Optimizer, device.F64, (2*clips+1)*readbackPiece)
	o.Extra = o.readback.Slice(0, clips*readbackPiece, Extras)
	for i := range clips {
		c := clip{stats: o.readback.Slice(0, i*readbackPiece, device.Stats), hyper: device.View(o.readback.Slice(0, (clips+1+i)*readbackPiece, readbackPiece).Data, device.F32, device.Hypers)}
		if o.config.apart() {
			c.apart = d.Arena.Zeroed(device.Optimizer, device.F32, device.Hypers)
		}
		o.clips = append(o.clips, c)
	}
	if o.config.apart() {
		o.rate = d.Arena.Zeroed(device.Optimizer, device.F32, 1)
	}
	o.stats = o.clips[0].stats
}

// clipOf is by which norm a parameter's gradient is clipped.
func (o *Optimizer) clipOf(p *mpu.Param) int {
	if o.config.OwnClip && p.OwnClip {
		return 1
	}
	return 0
}

// Extras is how many numbers others can have read with a step's result.
const Extras = 3

// readbackPiece is the length of each piece of the readback, f64: each begins aligned.
const readbackPiece = 8

// counts reports whether this rank counts what it has of a parameter: each global
// element is counted once in the group of sumStats.
func (o *Optimizer) counts(p *mpu.Param) bool {
	if o.worldwide {
		return o.bucketOf[p].family.once(p)
	}
	return p.Owner
}

// statsGroup is who has counted each global element once: the world, or one copy of the model.
func (o *Optimizer) statsGroup() *comm.Group {
	if o.worldwide {
		return o.groups.World
	}
	return o.groups.Families[mpu.Dense].Model
}

// asKernel is a setting as the kernels see it. The bias correction must be of the
// β that the moments are made with: in f32, 1−0.999 is 1.3e-5 off.
func asKernel(beta float64) float64 { return float64(float32(beta)) }
