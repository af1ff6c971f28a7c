package bench

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/megatron/config"
	"monotron/megatron/engine"
	"monotron/mpu/ranks"
	"monotron/tools/internal/command"
	"monotron/tools/internal/timing"
)

// layout is a way to cut the step, by a name.
type layout struct {
	Name string
	config.Layout
}

// layouts are measured in this order, one rank first and last.
var layouts = []layout{
	{"dp2", config.Layout{WorldSize: 2, DP: 2}},
	{"dp2 optim", config.Layout{WorldSize: 2, DP: 2, Sharding: "optim"}},
	{"tp2 sp", config.Layout{WorldSize: 2, TP: 2, SequenceParallel: true}},
	{"tp2", config.Layout{WorldSize: 2, TP: 2}},
	{"pp2", config.Layout{WorldSize: 2, PP: 2}},
	{"pp2 vp2", config.Layout{WorldSize: 2, PP: 2, VP: 2}},
	{"dp4", config.Layout{WorldSize: 4, DP: 4}},
	{"dp4 optim", config.Layout{WorldSize: 4, DP: 4, Sharding: "optim"}},
	{"tp4 sp", config.Layout{WorldSize: 4, TP: 4, SequenceParallel: true}},
	{"pp4", config.Layout{WorldSize: 4, PP: 4}},
	{"tp2 sp pp2", config.Layout{WorldSize: 4, TP: 2, PP: 2, SequenceParallel: true}},
}

// layoutTime is the step of one layout.
type layoutTime struct {
	Layout  string  `json:"layout"`
	Ranks   int     `json:"ranks"`
	Seconds float64 `json:"step_seconds"` // the fastest
	Ratio   float64 `json:"of_one_rank"`
	Bytes   int64   `json:"largest_rank_bytes"`
}

// layoutSteps is how many steps of each are timed, after one that is not, where nobody says.
const layoutSteps = 2

// benchLayouts times one step of the same global batch under each layout, ranks
// sharing this process's threads.
func benchLayouts(c *cli.Context, open func(string) (*device.Device, error)) error {
	o, err := readOptions(c)
	if err != nil {
		return err
	}
	if o.steps == 0 {
		o.steps = layoutSteps
	}
	notes, out := &command.Printer{W: c.App.ErrWriter}, &command.Printer{W: c.App.Writer}
	one := layout{"one rank", config.Layout{WorldSize: 1}}
	var times []layoutTime
	for _, l := range slices.Concat([]layout{one}, layouts, []layout{one}) {
		if o.batch%max(1, l.DP) != 0 || o.batch/max(1, l.DP) < l.PP {
			notes.Printf("%s: left out, %d samples are too few\n", l.Name, o.batch)
			continue
		}
		notes.Printf("%s\n", l.Name)
		t, err := timeLayout(l, o, func() (*device.Device, error) { return open(c.String("device")) })
		if exitcode.CodeOf(err) == exitcode.Usage && len(times) > 0 { // this model cannot be cut so
			notes.Printf("%s: left out, %v\n", l.Name, err)
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", l.Name, err)
		}
		times = append(times, t)
	}
	base := min(times[0].Seconds, times[len(times)-1].Seconds)
	for i := range times {
		times[i].Ratio = times[i].Seconds / base
	}
	if c.Bool("json") {
		out.JSON(times)
		return out.Err
	}
	out.Printf("%s, %s, %d samples of %d tokens a step, micro-batches of 1\n", o.name, o.precision, o.batch, o.seq)
	out.Printf("%-12s %6s %10s %9s %14s\n", "layout", "ranks", "seconds", "of one", "largest rank")
	for _, t := range times {
		out.Printf("%-12s %6d %10.3f %9.3f %10.0f MiB\n", t.Layout, t.Ranks, t.Seconds, t.Ratio, float64(t.Bytes)/(1<<20))
	}
	return out.Err
}

// timeLayout trains a few steps under l.
func timeLayout(l layout, o options, open func() (*device.Device, error)) (layoutTime, error) {
	config := timing.Config(o.shape())
	config.Layout, config.MicroBatchSize, config.GlobalBatchSize = l.Layout, 1, o.batch
	if err := config.SetVocab(o.model.VocabSize); err != nil {
		return layoutTime{}, err
	}
	sizes := l.Sizes()
	t := layoutTime{Layout: l.Name, Ranks: sizes.World(), Seconds: -1}
	largest := make([]int64, sizes.World())
	// Steps begin and end together; the first is not counted.
	err := ranks.Run(engine.Ranks(&config.Step, open), func(r *ranks.Rank) error {
		e, err := engineOf(r, config)
		if err != nil {
			return err
		}
		batch := layoutBatch(o, r.Coordinates.DP, sizes.DP)
		for n := range 1 + o.steps {
			if err := r.World().Barrier(); err != nil {
				return err
			}
			began := time.Now()
			if _, err := e.Step(batch); err != nil {
				return err
			}
			if err := r.World().Barrier(); err != nil {
				return err
			}
			if took := time.Since(began).Seconds(); r.First() && n > 0 && (t.Seconds < 0 || took < t.Seconds) {
				t.Seconds = took
			}
		}
		largest[r.Number] = r.Device.Arena.Usage().Max
		return nil
	})
	t.Bytes = slices.Max(largest)
	return t, err
}

// layoutBatch is a data-parallel rank's share of the same random samples.
func layoutBatch(o options, dp, ranks int) (mine []*engine.Micro) {
	random, single := rand.New(rand.NewPCG(timing.Seed, 0)), o
	single.batch = 1
	for sample := range o.batch {
		m := timing.RandomTokens(random, single.shape())
		m.Samples[0] = int32(sample)
		if sample%ranks == dp {
			mine = append(mine, m)
		}
	}
	return mine
}
