package plan

import (
	"cmp"
	"slices"
	"sync"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint/memory"
	"monotron/megatron/config"
	"monotron/megatron/engine"
	"monotron/megatron/optimizer/offload"
	"monotron/megatron/training"
	"monotron/mpu/comm"
	"monotron/mpu/health"
	"monotron/mpu/ranks"
	"monotron/mpu/topology"
)

// Options say on what a run is counted.
type Options struct {
	Device string         // cpu, cuda, ref
	Real   *device.Device // that this machine has: its ops say what they work in; nil: none
	Full   bool           // every micro-batch of a step is counted, also those that are like others
	Most   bool           // every rank is counted as if tokens chose its experts as often as they can; else evenly

	Read func(rank int, dst []byte) // what a rank's host reads of the device; nil: zeros, and tokens choose experts evenly
}

// Rank is what one rank holds.
type Rank struct {
	Number    int
	Peak      int64                  // most bytes at once
	ByPurpose [device.Purposes]int64 // most bytes of each, whenever
	At        Point                  // of the peak
	AtPeak    [device.Purposes]int64 // bytes then
	Reserved  int64                  // asked of the device, with what lies between blocks
	Stored    int64                  // in files (--offload-folder), in the host's memory for a GPU, or in 4 bits (--quantize-base)
	Scratch   int64                  // in which ops work, in addition; known where the device is here
	Copies    int64                  // in the host's memory: memory checkpoints of its shard, and of that of which it has copies

	shard int64 // of a memory checkpoint
}

// Memory counts what every rank of c's run holds: one of each kind is rehearsed. The
// vocabulary is set. A layout or shape that cannot be is exitcode.Usage.
func Memory(c config.Run, o Options) ([]Rank, error) {
	return o.Ranks(c, upTo(c.Layout.Sizes().World()))
}

// upTo are the numbers 0 to n-1.
func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// Largest is the rank that holds most.
func Largest(ranks []Rank) Rank {
	return slices.MaxFunc(ranks, func(a, b Rank) int { return cmp.Compare(a.Peak, b.Peak) })
}

// Ranks counts some of the ranks.
func (o Options) Ranks(c config.Run, numbers []int) ([]Rank, error) {
	if c.Checkpoint.MemoryInterval == 0 {
		return o.ranks(c, numbers)
	}
	owners, world := slices.Clone(numbers), c.Layout.Sizes().World()
	for _, number := range numbers { // whose copies these have
		owners = append(owners, (number+world-c.Checkpoint.ReplicationJump%world)%world)
	}
	all, err := o.ranks(c, owners)
	if err != nil {
		return nil, err
	}
	for i := range numbers {
		kept := all[len(numbers)+i].shard
		if c.Checkpoint.ReplicationJump == 0 {
			kept = 0
		}
		all[i].Copies = memory.KeptBytes(all[i].shard, kept)
	}
	return all[:len(numbers)], nil
}

// ranks is Ranks but for what ranks keep of others'.
func (o Options) ranks(c config.Run, numbers []int) ([]Rank, error) {
	job, err := o.job(c)
	if err != nil {
		return nil, err
	}
	sizes := c.Layout.Sizes()
	all, first := make([]Rank, len(numbers)), map[kind]int{}
	var kinds []int // indices into numbers
	for i, number := range numbers {
		k := o.kindOf(&c, sizes, number)
		if _, seen := first[k]; !seen {
			first[k] = i
			kinds = append(kinds, i)
		}
	}
	if err := each(kinds, func(i int) (err error) {
		all[i], err = o.count(job, numbers[i])
		return err
	}); err != nil {
		return nil, err
	}
	for i, number := range numbers {
		all[i] = all[first[o.kindOf(&c, sizes, number)]]
		all[i].Number = number
	}
	return all, nil
}

// Of counts one rank of c's run.
func (o Options) Of(c config.Run, rank int) (Rank, error) {
	job, err := o.job(c)
	if err != nil {
		return Rank{}, err
	}
	return o.count(job, rank)
}

func (o Options) job(c config.Run) (*training.Job, error) {
	if c.Leaves > 0 { // a changed c may be one that no flags can ask for
		for _, b := range c.LayoutBounds() {
			return nil, exitcode.Errorf(exitcode.Usage, "--layout-invariant cannot be combined with %s; %s", b.What, b.Instead)
		}
	}
	micros := 0
	if !o.Full {
		micros = enough(&c)
	}
	return training.Rehearsal(c, micros)
}

// kind is ranks with equal memory: those of a stage, with the same position among experts.
type kind struct{ stage, experts, shard, expertShard, own int }

// fewRanks are counted shard by shard: which of the gradients that tensor-parallel ranks add
// up lie in a rank's shard decides what they are packed into, which is never near the peak; which of
// the parameters, what a part of the optimizer's state in the host's memory is.
const fewRanks = 64

func (o Options) kindOf(c *config.Run, s topology.Sizes, rank int) kind {
	k := kind{stage: s.At(rank).PP}
	if c.Model.Experts != nil && s.EP > 1 {
		k.experts = s.ExpertAt(rank).EP
	}
	if sharded := c.Layout.DistributedOptimizer || c.Layout.Sharding != ""; sharded && s.World() <= fewRanks {
		if s.TP > 1 {
			k.shard = s.At(rank).DP
		}
		if f := c.OptimizerOffloadFraction; c.OptimizerCPUOffload && f > 0 && f < 1 {
			at := s.At(rank)
			k.shard, k.expertShard = at.DP*s.CP+at.CP, s.ExpertAt(rank).DP
		}
	}
	if o.Read != nil {
		k.own = rank
	}
	return k
}

// each does work on as many numbers at a time as there are processors.
func each(numbers []int, work func(int) error) error {
	var running sync.WaitGroup
	slots, failed := make(chan struct{}, device.Cores()), make([]error, len(numbers))
	for i, n := range numbers {
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			failed[i] = work(n)
		})
	}
	running.Wait()
	for _, err := range failed {
		if err != nil {
			return err
		}
	}
	return nil
}

// count rehearses one rank.
func (o Options) count(job *training.Job, number int) (Rank, error) {
	watching := device.Watching{Most: o.Most}
	if o.Read != nil {
		watching.Read = func(dst []byte) { o.Read(number, dst) }
	}
	d := device.Counting(o.Device, o.Real, watching)
	defer d.Close()
	rank, err := ranks.Imagine(engine.Ranks(&job.Config.Step, nil), number, d, comm.Imagined{Shares: o.Device == "cuda"})
	if err != nil {
		return Rank{}, err
	}
	out, here := Rank{Number: number}, Point{}
	rank.Heard = func(p health.Phase, step int64) { here = Point{Phase: p, Step: step} }
	d.Arena.Peaked = func() { out.At, out.AtPeak = here, d.Arena.Usage().Now }
	steps := 2 // what is gathered late is there from the second on
	if job.Config.Graphs {
		steps = 3 // done, taken down, launched
	}
	out.shard, err = job.Rehearse(rank, steps, engine.Observer{
		Micro: func(micro, chunk int) { here.Micro, here.Chunk = micro+1, chunk },
		Unit:  func(name string) { here.Unit = name },
	})
	u := d.Arena.Usage()
	out.Peak, out.ByPurpose, out.Reserved, out.Stored, out.Scratch = u.Max, u.Peak, u.Reserved, d.Stored(), d.Scratch()
	if job.Config.PackedBase {
		out.Stored = offload.PackedSize(job.Config.DType(), out.Stored)
	}
	out.At.Chunks = max(1, job.Config.Layout.VP)
	return out, err
}
