package layouts

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"monotron/csrc/device"
	"monotron/megatron/config"
	"monotron/megatron/optimizer"
)

// Options say how much is proved.
type Options struct {
	World    int                // largest number of ranks
	Steps    int                // trained under each layout
	Only     string             // layouts whose name contains all of its words
	Stride   int                // every Stride-th layout alone; 0 and 1: all
	Keep     func(Variant) bool // of these the ones that it keeps; nil: all
	Mutate   bool               // break things instead
	Bits     bool               // layouts must give the bits of one rank: of models with --layout-invariant
	Mutant   string             // the mutants whose name contains this, as a table of mutants prints it
	Open     func() (*device.Device, error)
	Reported func(Progress)
}

// Progress is how far a proof is. Reported receives it before each training, and at the end.
type Progress struct {
	Done, All int     // layouts of all models, or mutants of this one
	Next      string  // what is trained now; "": nothing more
	Last      Row     // the layout that has just ended; without a Model: none
	Share     float64 // of its bounds that Last used up; above 1: it differs
	Unseen    string  // the mutant that has just ended, where nobody saw it; "": it was caught
}

// next reports what has ended, once, and what begins.
func (p *Progress) next(o *Options, what string) {
	p.Next = what
	o.Reported(*p)
	p.Last, p.Unseen = Row{}, ""
}

// Prove trains each model under each layout.
func Prove(models []Model, o Options) (*Report, error) {
	// Models are small and made of garbage: at Go's own percentage half of the processor time goes into collecting it.
	defer debug.SetGCPercent(debug.SetGCPercent(collectAt))
	began := time.Now()
	r := &Report{Precision: models[0].Config.Precision, Steps: o.Steps, Bounds: BoundsOf(models[0].Config.Precision), Refused: map[string]int{}}
	if o.Bits {
		r.Bounds = Bounds{}
		r.refuse(models, o)
	}
	defer func() { r.Seconds = time.Since(began).Seconds() }()
	reported := Progress{}
	if !o.Mutate {
		for _, m := range models {
			reported.All += len(o.chosen(o.candidates(m)))
		}
	}
	var err error
	for _, m := range models {
		wanted, variants := &references{m: m, o: &o, made: map[int]*Outcome{}}, o.chosen(o.candidates(m))
		if o.Mutate {
			if reported, err = r.mutate(m, variants, o, wanted); err != nil {
				return nil, err
			}
			continue
		}
		for _, v := range variants {
			want, err := wanted.of(v, &reported)
			if err != nil {
				return nil, err
			}
			reported.next(&o, m.Name+": "+v.String())
			row, err := r.row(m, v, o, want)
			reported.Done++
			if errors.Is(err, optimizer.ErrCut) || errors.Is(err, config.ErrFP8Cut) {
				r.Refused["parts of blocks"]++
				continue
			}
			r.Rows = append(r.Rows, row)
			reported.Last, reported.Share = row, r.share(row)
		}
	}
	reported.next(&o, "")
	return r, nil
}

// collectAt is the growth of the heap, in percent, at which it is collected.
const collectAt = 400

// references are what the layouts of a model are compared with, each trained when it is asked for.
type references struct {
	m    Model
	o    *Options
	made map[int]*Outcome // by data-parallel ranks, where these matter
}

func (r *references) of(v Variant, reported *Progress) (*Outcome, error) {
	dp := 1
	if globalLoss(&r.m.Config) >= 0 {
		dp = v.Layout.DP
	}
	if r.made[dp] != nil {
		return r.made[dp], nil
	}
	reported.next(r.o, r.m.Name+" on one rank, which the others are compared with")
	m, one := r.m.reference(dp)
	out, err := Train(m, one, r.o.Steps, r.o.Open, Setup{})
	if err != nil {
		return nil, fmt.Errorf("%s on one rank: %w", m.Name, err)
	}
	r.made[dp] = out
	return out, nil
}

// row is what a layout gives; an error, which the row says too, is what ended its training.
func (r *Report) row(m Model, v Variant, o Options, want *Outcome) (row Row, err error) {
	row = Row{Model: m.Name, Layout: v.String(), World: v.Layout.Sizes().World()}
	got, err := Train(m, v, o.Steps, o.Open, Setup{})
	if err != nil {
		row.Problem = err.Error()
		return row, err
	}
	d := compare(got, want, r.Bounds)
	row.Loss, row.Norm, row.Grad, row.GradOf, row.Weight, row.WeightOf = d.Loss, d.Norm, d.Grad, d.WorstGrad, d.Weight, d.WorstWeight
	row.Forward, row.Seconds, row.OK = d.Forward, got.seconds, !d.Over
	if d.Over {
		row.Problem = d.where(r.Bounds) + " differs; it starts in " + locate(got, want, r.Bounds)
	}
	return row, nil
}

// mutated are the layouts that mutants are made of: together they make every
// collective there is.
var mutated = []string{"tp2 dp2", "tp2 sp pp2 dp2", "pp2 vp2", "dp2 optim", "dp2 optim_grads", "dp2 optim_grads_params", "tp2 recompute-full-uniform distributed", "tp4", "tp4 sp",
	"cp2 all_gather", "cp2 p2p optim", "cp2 a2a optim_grads", "cp4 a2a+p2p optim_grads_params"}

// mutatedMixtures are those that experts over ranks make possible, without and with a shared
// expert.
var mutatedMixtures = []string{"dp2 ep2 allgather", "dp2 ep2 alltoall optim", "dp2 ep2 alltoall beside-shared optim", "dp4 ep2 alltoall optim_grads_params",
	"tp2 sp ep2 etp1 alltoall", "tp2 sp ep2 etp1 alltoall beside-shared", "tp2 sp dp2 ep2 alltoall", "tp2 sp dp2 ep2 alltoall beside-shared"}

func (r *Report) mutate(m Model, variants []Variant, o Options, wanted *references) (reported Progress, err error) {
	mutants, err := Mutants(m, variants, o.Steps, o.Open)
	if err != nil {
		return reported, err
	}
	mutants = slices.DeleteFunc(mutants, func(mu *Mutant) bool { return !strings.Contains(mu.Name, o.Mutant) })
	reported.All = len(mutants)
	for _, mutant := range mutants {
		want, err := wanted.of(mutant.variant, &reported)
		if err != nil {
			return reported, err
		}
		mutant.Name = m.Name + ": " + mutant.Name
		reported.next(&o, mutant.Name)
		mutant.Run(m, o.Steps, o.Open, want, r.Bounds)
		if !mutant.Caught {
			reported.Unseen = mutant.Name
		}
		reported.Done++
	}
	r.Mutants = append(r.Mutants, mutants...)
	return reported, nil
}

// candidates are the possible layouts of a model.
func (o *Options) candidates(m Model) []Variant {
	all := Legal(&m.Config, o.World)
	if o.Bits {
		all = slices.DeleteFunc(all, func(v Variant) bool { return len(bounds(m, v)) > 0 })
	}
	if !o.Mutate {
		return all
	}
	var some []Variant
	for _, name := range slices.Concat(mutated, mutatedMixtures) {
		for _, v := range all {
			if v.String() == name {
				some = append(some, v)
			}
		}
	}
	return some
}

// bounds are the parts of a layout that --layout-invariant refuses.
func bounds(m Model, v Variant) []config.LayoutBound {
	c := m.Config
	c.Layout = v.Layout
	return c.LayoutBounds()
}

// refuse counts the layouts that are left out, by the first reason of each.
func (r *Report) refuse(models []Model, o Options) {
	for _, m := range models {
		for _, v := range o.chosen(Legal(&m.Config, o.World)) {
			if list := bounds(m, v); len(list) > 0 {
				r.Refused[list[0].What]++
			}
		}
	}
}

// Names lists the layouts of a model that o.Only chooses from.
func (o *Options) Names(m Model) (names []string) {
	for _, v := range o.candidates(m) {
		names = append(names, v.String())
	}
	return names
}

// chosen picks the layouts that were asked for.
func (o *Options) chosen(all []Variant) (some []Variant) {
	for i, v := range all {
		if o.Stride > 1 && i%o.Stride != 0 {
			continue
		}
		if hasWords(v.String(), o.Only) && (o.Keep == nil || o.Keep(v)) {
			some = append(some, v)
		}
	}
	return some
}

func hasWords(name, words string) bool {
	for _, w := range strings.Fields(words) {
		if !strings.Contains(" "+name+" ", " "+w+" ") {
			return false
		}
	}
	return true
}
