package plan

import (
	"math"

	"github.com/urfave/cli/v2"

	"monotron/internal/exitcode"
	"monotron/megatron/plan"
	"monotron/tools/internal/command"
)

// goodputFlags say what interrupts a run.
var goodputFlags = []cli.Flag{
	command.Between(1, 1e9, &cli.Float64Flag{Name: "device-mtbf", Usage: "assume `HOURS` on average between two failures of one device (default: that of the machine file)"}),
	command.Between(0, 1e6, &cli.Float64Flag{Name: "restart-seconds", Value: 300, Usage: "assume `SECONDS` between a failure and the next step: detection, start, loading"}),
	command.Between(0, 1e6, &cli.Float64Flag{Name: "save-seconds", Usage: "assume that writing a checkpoint takes `SECONDS` (default: computed from the disk's rate in the machine file)"}),
	command.Between(0, 1e6, &cli.IntFlag{Name: "spare-nodes", Usage: "assume `N` spare nodes, whose price counts (default: no spare nodes; a failed node is replaced within --restart-seconds)"}),
	command.Between(0, 1e6, &cli.Float64Flag{Name: "repair-hours", Value: 24, Usage: "with --spare-nodes: assume `HOURS` until a failed node is repaired"}),
}

// goodput is what of the run's time is left for steps.
type goodput struct {
	plan.Goodput
	failures float64 // of the training
	days     float64 // of it, with checkpoints and failures
	steps    float64 // between two checkpoints
	best     float64 // the same, at the best interval
	spares   int
}

// failing is the goodput of the run; nil: nobody says how often a device fails.
func (p *runPlan) failing(c *cli.Context) (*goodput, error) {
	// How often a device fails: the flag, else the machine file, else there is nothing to compute.
	hours := p.machine.DeviceHours
	if c.IsSet("device-mtbf") {
		hours = c.Float64("device-mtbf")
	}
	if hours == 0 {
		for _, name := range []string{"restart-seconds", "save-seconds", "spare-nodes", "repair-hours"} {
			if c.IsSet(name) {
				return nil, exitcode.Errorf(exitcode.Usage, "--%s needs --device-mtbf, because machine %s gives no mean time between failures of a device", name, p.machine.Name)
			}
		}
		return nil, nil
	}
	// What a save costs: a measured one or the flag's; an asynchronous one delays nothing.
	f := plan.Failures{Between: hours * 3600, Restart: c.Float64("restart-seconds"), Save: p.extras.Writing, Spares: c.Int("spare-nodes"), Repair: c.Float64("repair-hours") * 3600}
	if c.IsSet("save-seconds") {
		f.Save = c.Float64("save-seconds")
	}
	if p.config.Checkpoint.Async {
		f.Save, f.Late = 0, f.Save
	}
	n, err := p.config.Iterations()
	if err != nil {
		return nil, err
	}
	world := p.config.Layout.Sizes().World()
	if f.Save+f.Late == 0 && !c.IsSet("save-seconds") { // then goodput cannot be computed
		between := f.Between / float64(world)
		return &goodput{Goodput: plan.Goodput{Between: between}, failures: p.days() * 86400 / between}, nil
	}
	// Goodput of the run's own interval between saves, and the best interval.
	every := float64(p.config.Checkpoint.SaveInterval) * p.seconds.Step
	g := &goodput{Goodput: f.Goodput(world, p.machine.PerNode, every), spares: f.Spares}
	steps := float64(n)*p.seconds.Step + float64(p.extras.Evaluations)*p.extras.Evaluation
	g.days = steps / g.Share / 86400
	g.failures = g.days * 86400 / g.Between
	g.steps, g.best = g.Every/p.seconds.Step, g.Best/p.seconds.Step
	return g, nil
}

// known reports whether there is a goodput: it needs the time of a checkpoint.
func (g *goodput) known() bool { return g.Best > 0 }

// devices that are paid for: those of the spare nodes too.
func (g *goodput) devices(p *runPlan) float64 {
	return float64(p.config.Layout.Sizes().World() + g.spares*p.machine.PerNode)
}

// cost of the training, and how much of it is lost to checkpoints, failures and waiting spare nodes.
func (g *goodput) cost(p *runPlan) (total, lost float64) {
	world := float64(p.config.Layout.Sizes().World())
	return g.Cost(g.days*g.Share*24*world, p.price, g.devices(p)/world-1)
}

// write prints the lines about failures.
func (g *goodput) write(p *runPlan, out *command.Printer) {
	if !g.known() {
		out.Printf("  a failure every %s, about %.3g in total; give --save-seconds, the time of a checkpoint, to compute the goodput\n", lasting(g.Between/86400), g.failures)
		return
	}
	out.Printf("  goodput %.1f%%: a failure every %s, about %.3g in total; ", 100*g.Share, lasting(g.Between/86400), g.failures)
	if p.config.Checkpoint.SaveInterval > 0 {
		out.Printf("a checkpoint every %d steps (best: %.0f, %.1f%%)", p.config.Checkpoint.SaveInterval, math.Ceil(g.best), 100*g.AtBest)
	} else {
		out.Printf("best with --save-interval %.0f", math.Ceil(g.best))
	}
	if g.Waits > 0.001 {
		out.Printf("; %.2g%% of the failures find no spare node", 100*g.Waits)
	}
	out.Printf("\n  %s with checkpoints and failures", lasting(g.days))
	if p.price > 0 {
		total, lost := g.cost(p)
		out.Printf(", %s for %.0f devices, of which %s are lost", money(total), g.devices(p), money(lost))
	}
	out.Printf("\n")
}

// goodputReport is what --json has of it.
type goodputReport struct {
	Share    float64 `json:"goodput"`
	Between  float64 `json:"seconds_between_failures"`
	Failures float64 `json:"failures"`
	Every    float64 `json:"steps_between_checkpoints"`
	Best     float64 `json:"best_steps_between_checkpoints"`
	AtBest   float64 `json:"best_goodput"`
	Waits    float64 `json:"failures_without_spare"` // share
	Days     float64 `json:"days"`
	Cost     float64 `json:"cost,omitempty"`
	Lost     float64 `json:"cost_lost,omitempty"` // of it
}

func (g *goodput) report(p *runPlan) *goodputReport {
	if g == nil || !g.known() {
		return nil
	}
	total, lost := g.cost(p)
	return &goodputReport{g.Share, g.Between, g.failures, g.steps, g.best, g.AtBest, g.Waits, g.days, total, lost}
}
