package plan

import "math"

// Failures are what interrupts a run, and what an interruption costs. All times are seconds.
type Failures struct {
	Between float64 // mean time between two failures of one device
	Restart float64 // from a failure to the next step: detection, start, load
	Save    float64 // that a checkpoint delays the steps
	Late    float64 // from the beginning of a checkpoint until it can be loaded, where steps continue meanwhile (--async-save)
	Spares  int     // nodes that stand by
	Repair  float64 // that a failed node is missing; it matters with spares only
}

// Goodput is the part of a run's time that is not lost to checkpoints and failures.
type Goodput struct {
	Share   float64 // of the time, spent on steps that are kept
	Every   float64 // seconds of steps between two checkpoints
	Best    float64 // the interval with the largest share
	AtBest  float64 // that share
	Between float64 // seconds between two failures of the run
	Waits   float64 // share of the failures that find no spare node
}

// Goodput is that of a run on so many devices, in nodes of perNode, that saves every so many
// seconds of steps; 0: at the best interval.
//
// Failures are independent and equally likely at any time (a Poisson process), also during restarts and
// checkpoints, as in Daly, A higher order estimate of the optimum checkpoint interval, 2006: a segment of τ
// seconds of steps and a checkpoint of C takes M·exp(R/M)·(exp((τ+C)/M) − 1) in the mean, with M between
// failures and R for a restart.
func (f Failures) Goodput(devices, perNode int, every float64) (g Goodput) {
	g.Between = f.Between / float64(devices)
	restart := f.Restart + f.Late
	if f.Spares > 0 && f.Repair > 0 {
		// Failed nodes in repair are Poisson too; a failure that finds N of them missing waits for the first to return.
		missing := f.Repair / (f.Between / float64(perNode)) * (float64(devices)/float64(perNode) + float64(f.Spares))
		g.Waits = atLeast(f.Spares, missing)
		restart += g.Waits * f.Repair / float64(f.Spares+1)
	}
	share := func(τ float64) float64 {
		return τ / (g.Between * math.Exp(restart/g.Between) * math.Expm1((τ+f.Save)/g.Between))
	}
	shortest := max(1, f.Late) // a checkpoint begins when the last one is done
	g.Best = max(shortest, highest(share, f.Save/1000+1e-3, 2*math.Sqrt(2*max(f.Save, 1e-3)*g.Between)+10*g.Between))
	g.AtBest = share(g.Best)
	if g.Every = max(every, shortest); every == 0 {
		g.Every = g.Best
	}
	g.Share = share(g.Every)
	return g
}

// Cost is what a run costs whose steps take so many device-hours, and how much of that is lost to checkpoints and
// failures. spares are the devices that stand by for each device that computes: all of theirs is lost.
func (g Goodput) Cost(deviceHours, price, spares float64) (total, lost float64) {
	kept := deviceHours * price
	total = kept / g.Share * (1 + spares)
	return total, total - kept
}

// highest is where a function with one maximum between low and high has it, by golden sections of the
// logarithm.
func highest(f func(float64) float64, low, high float64) float64 {
	const golden = 0.6180339887498949
	a, b := math.Log(low), math.Log(high)
	x, y := b-golden*(b-a), a+golden*(b-a)
	for range 100 {
		if f(math.Exp(x)) > f(math.Exp(y)) {
			b = y
		} else {
			a = x
		}
		x, y = b-golden*(b-a), a+golden*(b-a)
	}
	return math.Exp((a + b) / 2)
}

// atLeast is the probability that a Poisson variable of this mean is n or more.
func atLeast(n int, mean float64) float64 {
	term, below := math.Exp(-mean), 0.0
	for i := range n {
		below += term
		term *= mean / float64(i+1)
	}
	return max(0, 1-below)
}
