package ranks

import (
	"monotron/csrc/device"
	"monotron/mpu/comm"
	"monotron/mpu/health"
	"monotron/mpu/health/inject"
	"monotron/mpu/topology"
)

// Rank is one rank of a run: its number, its layout coordinates, its device and
// the groups it is in.
type Rank struct {
	Number      int
	Sizes       topology.Sizes
	Coordinates topology.Coordinates
	Device      *device.Device

	Groups map[topology.Kind]*comm.Group // that it has joined; nil of a kind that it is not in
	Saves  *comm.Group                   // all ranks, for saving during the training

	Carrier string           // how tensors travel between ranks, where that is worth a line
	RunName string           // alike on all ranks of a run of processes; "": all ranks are in this process
	Inject  *inject.Injector // faults made on purpose; nil: none

	Heard func(p health.Phase, step int64) // is called when the rank enters a phase; may be nil

	carrier comm.Groups      // where it joins groups
	watch   *health.Recorder // nil: nobody watches
}

// Alone is the one rank of a run on d, in every kind of group that one rank can be in.
func Alone(d *device.Device) *Rank { return alone(one, d) }

// one are the sizes of a run of one rank.
var one = topology.Sizes{TP: 1, CP: 1, DP: 1, PP: 1, EP: 1}

func alone(s topology.Sizes, d *device.Device) *Rank {
	r := &Rank{Sizes: s, Device: d, Groups: map[topology.Kind]*comm.Group{}, Saves: comm.Solo(savesName, 0, d)}
	for _, kind := range topology.Kinds() {
		if s.Group(kind, 0) != nil {
			r.Groups[kind] = comm.Solo(string(kind), 0, d)
		}
	}
	return r
}

// Join makes the rank a member of its groups of these kinds. All ranks call it alike;
// what a rank has joined already, and what it is not in, is passed over.
func (r *Rank) Join(kinds ...topology.Kind) error {
	for _, kind := range kinds {
		members := r.Sizes.Group(kind, r.Number)
		if r.Groups[kind] != nil || members == nil {
			continue
		}
		g, err := r.carrier.Group(r.Number, string(kind), members, r.Device)
		if err != nil {
			return err
		}
		r.Groups[kind] = r.watch.Wrap(g, false)
	}
	return nil
}

// savesName is the group of Rank.Saves.
const savesName = "saves"

// joinSaves makes Saves, in another world than the groups: it is used by a
// goroutine other than the rank's own.
func (r *Rank) joinSaves(over comm.Groups) error {
	all := r.Sizes.Group(topology.All, r.Number)
	g, err := over.Group(r.Number, savesName, all, r.Device)
	if err != nil {
		return err
	}
	r.Saves = r.watch.Wrap(g, true)
	return nil
}

// World is the group of all ranks.
func (r *Rank) World() *comm.Group { return r.Groups[topology.All] }

// First reports whether this is the rank that speaks for what all ranks share;
// Last is the one that knows the loss, and prints it as Megatron's does.
func (r *Rank) First() bool { return r.Number == 0 }
func (r *Rank) Last() bool  { return r.Number == r.Sizes.World()-1 }

// Enter says what the rank is at now, for whoever has to say why it does no more.
func (r *Rank) Enter(p health.Phase, step int64) {
	if r.Heard != nil {
		r.Heard(p, step)
	}
	r.watch.Enter(p, step)
}

// Outside says that what the rank waits for outside of the run is alive.
func (r *Rank) Outside() { r.watch.Outside() }

// Worked is how many seconds the rank has worked in each phase until the step under way,
// waiting for others left out, and how many steps it has begun.
func (r *Rank) Worked() (own [health.Phases]float64, steps int64) { return r.watch.Worked() }
